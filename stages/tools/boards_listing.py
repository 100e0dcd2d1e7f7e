"""What `pipeline boards` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from boards import board_names, load_board
from hil.bench.bench_file import load_bench
from hil.bench.inventory import Inventory, Listed, take_inventory
from pipeline.stage import Answer, read_json

_TITLES = ("probe", "board", "port", "drive", "instrument", "state")


def boards(bench: Path) -> Answer:
    """Everything attached; `bench` need not exist."""
    return described(take_inventory(load_bench(bench) if bench.exists() else None), bench.name)


def probe_of(artifacts: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Which probe a step must have: the one that flashed, else the one that the configuration names; '' for any."""
    if "flash" in artifacts:
        return str(read_json(artifacts["flash"])["probe_serial"])
    return str(sections.get("flash", {}).get("probe_serial", ""))


def described(found: Inventory, bench_name: str) -> Answer:
    """The inventory as a table and as plain values."""
    rows = [_TITLES, *(_row(one) for one in found.probes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines = table if found.probes else ["no debug probe is attached; every board also runs as a twin: add --virtual"]
    described_boards = [load_board(name) for name in board_names()]
    shown = ", ".join(f"{board.name} ({board.mcu}, {board.clock_hz / 1e6:g} MHz)" for board in described_boards)
    lines += [f"supported: {shown}"]
    lines += [f"{bench_name}: probe {serial} is not attached" for serial in found.wired_but_absent]
    lines += [f"not everything could be asked: {trouble}" for trouble in found.troubles]
    return Answer("\n".join(lines), {**asdict(found), "supported": [board.name for board in described_boards]})


def _row(one: Listed) -> tuple[str, ...]:
    board = one.board if one.board in board_names() else f"{one.board or 'unknown'} (none of ours)"
    state = f"in use by {one.held_by}" if one.held_by else "free"
    return (one.probe_serial, board, one.port or "-", " ".join(one.drives) or "-", one.instrument or "-", state)
