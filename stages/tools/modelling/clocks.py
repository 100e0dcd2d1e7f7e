"""What `pipeline clocks` makes of one network at several core clocks: a table, a chart, the best clock for a pace.

The energy of a pace is that of an inference and of the idle time until the next one. On a twin both are the model's
(board.yaml: a fixed part, and one that follows clock and core voltage; asleep a third of the latter, which is assumed).
On a board they are measured where an instrument is tied; measured and modelled stand in columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boards import Board, load_board
from pipeline.errors import ConfigError
from pipeline.stage import Answer, read_json
from pipeline.text import csv_text

_CHART = "clocks.svg"
_TABLE = "clocks.csv"


@dataclass(frozen=True, kw_only=True)
class AtClock:
    """One row: None is what this source cannot tell."""

    board: str
    source: str
    clock_hz: int
    voltage_scale: str
    core_v: float
    latency_ms: float | None
    latency_ms_modelled: float | None
    energy_mj: float | None  # of one inference, by an instrument
    energy_mj_simulated: float | None
    energy_mj_modelled: float | None
    idle_mw: float | None
    idle_mw_modelled: float
    measurement_point: str
    inferences_per_s: float
    keeps_pace: bool
    average_mw: float | None  # at that pace, idle time included
    average_mw_modelled: float | None

    @property
    def average(self) -> float | None:
        return self.average_mw if self.average_mw is not None else self.average_mw_modelled


def clock_settings(board: str, only_mhz: Sequence[int]) -> Answer:
    """The clocks to try, the fastest first."""
    known = [setting.hz // 1_000_000 for setting in load_board(board).clocks]
    odd = [mhz for mhz in only_mhz if mhz not in known]
    if odd:
        raise ConfigError(f"--clock: {board} knows no {odd[0]} MHz, needed some of {', '.join(map(str, known))}")
    return Answer("", {"clocks_mhz": [mhz for mhz in known if not only_mhz or mhz in only_mhz]})


def study(board: str, measured: Sequence[Path], inferences_per_s: float, out: Path) -> Answer:
    """From the folders of the step measure, one for each clock; writes clocks.csv and clocks.svg."""
    described = load_board(board)
    rows = [at_clock(described, read_json(folder / "device.json"), inferences_per_s) for folder in measured]
    best = best_clock(rows)
    out.mkdir(parents=True, exist_ok=True)
    records = [asdict(row) for row in rows]
    (out / _TABLE).write_text(csv_text(records, list(records[0])))
    (out / _CHART).write_text(_chart(rows))
    verdict = _verdict(rows, best, inferences_per_s)
    record = {"rows": records, "best_clock_hz": None if best is None else best.clock_hz, "text": verdict}
    return Answer("\n".join([*_lines(rows), verdict, f"written to {out / _TABLE} and {out / _CHART}"]), record)


def at_clock(described: Board, device: Mapping[str, Any], inferences_per_s: float) -> AtClock:
    """One clock's row from its device.json."""
    board = described.at_clock(device["clock_hz"])
    setting = next(each for each in described.clocks if each.hz == board.clock_hz)
    energy, burst = device["energy"], device["burst"]
    is_measured = energy["source"] == "measured"
    on_board = device["source"] == "hardware"
    latency_ms = burst["ticks"] / board.clock_hz * 1e3 if on_board and burst else None
    modelled_ms = device["latency_ms_modelled"]
    energy_mj = energy["energy_mj"] if is_measured else None
    modelled_mj = None if modelled_ms is None else board.power_active_w * modelled_ms
    period_ms = 1e3 / inferences_per_s
    taken_ms = latency_ms if latency_ms is not None else modelled_ms
    keeps = taken_ms is not None and taken_ms <= period_ms
    idle_mw, idle_modelled_mw = energy.get("idle_mw") if is_measured else None, board.power_idle_w * 1e3

    def average(energy_of_one: float | None, busy_ms: float | None, idle: float | None) -> float | None:
        if not keeps or energy_of_one is None or busy_ms is None or idle is None:
            return None
        return (energy_of_one + idle * (period_ms - busy_ms) / 1e3) / period_ms * 1e3

    return AtClock(
        board=board.name,
        source=device["source"],
        clock_hz=board.clock_hz,
        voltage_scale=setting.voltage_scale,
        core_v=setting.core_v,
        latency_ms=latency_ms,
        latency_ms_modelled=modelled_ms,
        energy_mj=energy_mj,
        energy_mj_simulated=energy["energy_mj"] if energy["source"] == "simulated" else None,
        energy_mj_modelled=modelled_mj,
        idle_mw=idle_mw,
        idle_mw_modelled=idle_modelled_mw,
        measurement_point=energy["measurement_point"] if energy["source"] else board.power_point,
        inferences_per_s=inferences_per_s,
        keeps_pace=keeps,
        average_mw=average(energy_mj, latency_ms, idle_mw),
        average_mw_modelled=average(modelled_mj, modelled_ms, idle_modelled_mw),
    )


def best_clock(rows: Sequence[AtClock]) -> AtClock | None:
    """The one that takes the least at this pace; None if none keeps it."""
    able = [row for row in rows if row.average is not None]
    return min(able, key=lambda row: row.average or 0.0) if able else None


def _verdict(rows: Sequence[AtClock], best: AtClock | None, pace: float) -> str:
    if best is None:
        return f"no clock keeps {pace:g} inferences a second"
    kind = "measured" if best.average_mw is not None else "modelled"
    full = rows[0].average
    text = f"best for {pace:g} inferences a second: {best.clock_hz / 1e6:g} MHz, {best.average:.1f} mW {kind}"
    return text + (f"; {full:.1f} mW at {rows[0].clock_hz / 1e6:g} MHz" if full is not None and best != rows[0] else "")


def _lines(rows: Sequence[AtClock]) -> list[str]:
    head = f"{'MHz':>5} {'supply':<24} {'ms':>9} {'mJ':>9} {'idle mW':>8} {'mean mW':>8}  ({rows[0].source})"
    return [head] + [
        f"{row.clock_hz / 1e6:>5g} {row.voltage_scale:<24}"
        f" {_number(row.latency_ms, row.latency_ms_modelled)} {_number(row.energy_mj, row.energy_mj_modelled)}"
        f" {row.idle_mw if row.idle_mw is not None else row.idle_mw_modelled:>8.1f}"
        f" {f'{row.average:.1f}' if row.average is not None else 'too slow':>8}"
        for row in rows
    ]


def _number(measured: float | None, modelled: float | None) -> str:
    value = measured if measured is not None else modelled
    return f"{'-' if value is None else f'{value:.3f}':>9}"


def _chart(rows: Sequence[AtClock]) -> str:
    """Latency and energy over the clock, and what the pace takes on average."""
    import vl_convert

    kind = "measured" if rows[0].latency_ms is not None else "modelled"
    panels = (
        ("ms per inference", lambda row: row.latency_ms if row.latency_ms is not None else row.latency_ms_modelled),
        ("mJ per inference", lambda row: row.energy_mj if row.energy_mj is not None else row.energy_mj_modelled),
        (f"mW at {rows[0].inferences_per_s:g} per second, idle included", lambda row: row.average),
    )
    charts = [
        {
            "data": {"values": [{"MHz": row.clock_hz / 1e6, title: value(row)} for row in rows]},
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "MHz", "type": "quantitative"},
                "y": {"field": title, "type": "quantitative", "scale": {"zero": True}},
            },
            "width": 220,
            "height": 180,
        }
        for title, value in panels
    ]
    title = f"{rows[0].board} ({rows[0].source}, {kind}; {rows[0].measurement_point} supply)"
    svg: str = vl_convert.vegalite_to_svg({"title": title, "hconcat": charts})
    return svg
