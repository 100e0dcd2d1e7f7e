"""`pipeline resources --board` and `pipeline fit`: what a network costs on a board, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boards import Board, load_board
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer
from stages.firmware.config import FirmwareConfig
from stages.firmware.cost.compiled import Cost
from stages.firmware.cost.network import NetworkCost
from stages.firmware.cost.settings import FirmwareSettings
from stages.nets.channels import Channels, find_channels
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from stages.prune.config import PruneConfig
from stages.prune.widths import WidthRule

_FIGURES = {"latency_ms": "ms", "energy_mj": "mJ", "flash_bytes": "B", "ram_bytes": "B"}


def board_resources(network: NetworkConfig, firmware: FirmwareConfig, board: str) -> Answer:
    """Every layer of the unpruned network: modelled ms and mJ, flash, arena while it runs; and the whole firmware."""
    channels, cost = _cost(network, firmware, board)
    described = load_board(board)
    try:
        found = cost.exact(channels.widths)[board]
    except StageError as error:
        reason = str(error).removeprefix("firmware: ")
        return Answer(f"{board}: the unpruned network does not fit: {reason}", {"board": board, "fits": False})
    rows = [("", "op", "kernel", "ms", "mJ", "flash B", "arena B")]
    for index, layer in enumerate(found.layers):
        ms = layer.cycles / described.clock_hz * 1e3
        flash = layer.constant_bytes + layer.assembly_bytes
        figures = f"{ms:.3f}", f"{ms * described.power_active_w:.3f}", f"{flash:,}", f"{layer.arena_live_bytes:,}"
        rows.append((str(index), layer.kind[:40], layer.kernel[:40], *figures))
    whole = f"{found.latency_ms:.3f}", f"{found.energy_mj:.3f}", f"{found.flash_bytes:,}", f"{found.ram_bytes:,}"
    rows.append(("", "the firmware", "with stack and link", *whole))
    record = {
        "board": board,
        "fits": True,
        **_record(found),
        "layers": [_layer(layer, described) for layer in found.layers],
    }
    return Answer("\n".join([f"{board}: {_source(described)}", *_aligned(rows, left=3)]), record)


def fit(network: NetworkConfig, firmware: FirmwareConfig, prune: PruneConfig, board: str) -> Answer:
    """The smallest budgets that can be met on a board, and the widest network, scaled uniformly, that fits it."""
    channels, cost = _cost(network, firmware, board)
    rule = WidthRule(channels, prune)
    if not cost.fits(rule.smallest):
        raise ConfigError(
            f"fit: {network.title} with {max(rule.smallest, default=0)} channels in every layer does not fit the "
            f"memory of {board}; choose a board with more memory, a smaller input or a smaller network"
        )
    share, widest = rule.widest_uniform(cost.fits)
    smallest, largest = cost.exact(rule.smallest)[board], cost.exact(widest)[board]
    rows = [("", "smallest", "widest that fits")]
    for name, unit in _FIGURES.items():
        values = [getattr(found, name) for found in (smallest, largest)]
        rows.append((f"{name}, {unit}", *(f"{v:,}" if isinstance(v, int) else f"{v:.3f}" for v in values)))
    text = [
        f"{network.title} on {board}: {_source(load_board(board))}",
        *_aligned(rows, left=1),
        f"smallest: {max(rule.smallest, default=0)} channels in every layer (prune.min_channels)",
        f"widest: {share:.0%} of the channels of every layer, {_shown(widest)}",
    ]
    record = {
        "board": board,
        "smallest": {"widths": rule.smallest, **_record(smallest)},
        "largest": {"widths": widest, "share": share, **_record(largest)},
    }
    return Answer("\n".join(text), record)


def _cost(network: NetworkConfig, firmware: FirmwareConfig, board: str) -> tuple[Channels, NetworkCost]:
    channels = find_channels(build(network), network.input_shape)
    keys = FirmwareSettings.__dataclass_fields__
    settings = FirmwareSettings(**{key: getattr(firmware, key) for key in keys})
    return channels, NetworkCost(channels.graph, channels.widths, [board], settings)


def _source(board: Board) -> str:
    """Where the figures come from."""
    power = f"power {board.power_active_w:g} W, a typical figure (board.yaml)"
    if board.calibration is None:
        return f"modelled at {board.clock_hz // 10**6} MHz, not calibrated; {power}"
    return f"modelled at {board.clock_hz // 10**6} MHz, calibrated {board.calibration.when}; {power}"


def _record(found: Cost) -> dict[str, Any]:
    return {
        **{name: getattr(found, name) for name in _FIGURES},
        "cycles_modelled": round(found.cycles),
        "cycles_zero_wait": found.cycles_zero_wait,
        "arena_bytes": found.arena_bytes,
    }


def _layer(layer: Any, board: Board) -> dict[str, Any]:
    ms = layer.cycles / board.clock_hz * 1e3
    return {
        "op": layer.kind,
        "name": layer.name,
        "kernel": layer.kernel,
        "cycles_modelled": round(layer.cycles),
        "cycles_zero_wait": layer.cycles_zero_wait,
        "latency_ms_modelled": ms,
        "energy_mj_modelled": ms * board.power_active_w,
        "flash_bytes": layer.constant_bytes + layer.assembly_bytes,
        "arena_live_bytes": layer.arena_live_bytes,
    }


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) if n < left else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def _shown(widths: Sequence[int]) -> str:
    return " ".join(map(str, widths)) if len(widths) <= 12 else f"{' '.join(map(str, widths[:12]))} ..."
