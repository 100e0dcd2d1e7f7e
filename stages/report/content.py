"""The words and tables of report.html: verdict first, then what it stands on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from stages.report.charts.device import best_known
from stages.report.charts.network import worst_confusions
from stages.report.device_budgets import device_bounds
from stages.report.evidence import Evidence
from stages.report.figures import BoardFigures, NetworkFigures, Spread
from stages.report.page.document import NOTHING, count, fixed, percent


@dataclass(frozen=True)
class Cell:
    text: str
    sort: float | str | None = None  # what a table is sorted by, where it is not the text
    note: str = ""


@dataclass(frozen=True)
class Row:
    cells: tuple[Cell, ...]
    tone: str = ""


@dataclass(frozen=True)
class Card:
    name: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[tuple[str, bool], ...]  # title, is it a number
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Verdict:
    tone: str  # good, bad, plain
    headline: str
    sentence: str
    reasons: tuple[str, ...]


def verdict(network: NetworkFigures, boards: Sequence[BoardFigures]) -> Verdict:
    """Fits or not, per budget and board, and how that is known."""
    limited = [(name, bound, unit) for name, bound, unit in network.bounds if bound.allowed is not None]
    on_boards = device_bounds(network, boards)
    missed = [f"{name} by {bound.used - bound.allowed:,}{unit}" for name, bound, unit in limited if not bound.holds]
    missed += [f"{bound.title} on {bound.board}" for bound in on_boards if not bound.holds]
    crowded = [figures.board for figures in boards if not figures.fits_memory]
    reasons = [
        f"{name}: {bound.used:,} of {bound.allowed:,}{unit} ({percent(bound.used / bound.allowed, 1)}), counted exactly"
        for name, bound, unit in limited
        if bound.allowed
    ]
    reasons += [
        f"{title}: budget {allowed}, predicted {predicted}, found {found}"
        for title, allowed, predicted, found, _ in (bound.cells for bound in on_boards)
    ]
    reasons += [_board_sentence(figures) for figures in boards]
    names = ", ".join(figures.board for figures in boards)
    if missed or crowded:
        parts = [f"over budget: {', '.join(missed)}"] if missed else []
        parts += [f"the image is too large for {', '.join(crowded)}"] if crowded else []
        sentence = "; ".join(parts)
        return Verdict("bad", "Does not fit", f"{sentence[0].upper()}{sentence[1:]}.", tuple(reasons))
    count = len(limited) + len(on_boards)
    if count:
        held = "The budget holds" if count == 1 else f"All {count} budgets hold"
        return Verdict("good", "Fits", f"{held}, and the image fits the memory of {names}.", tuple(reasons))
    headline = "Fits the boards" if len(boards) > 1 else "Fits the board"
    return Verdict("good", headline, f"No budget was set; the image fits the memory of {names}.", tuple(reasons))


def cards(network: NetworkFigures, boards: Sequence[BoardFigures], accuracy: Mapping[str, Any] | None) -> list[Card]:
    found = []
    if network.accuracy_int8 is not None:
        found.append(
            Card("int8 accuracy", f"{100 * network.accuracy_int8:.2f}", "%", _accuracy_note(network, accuracy))
        )
    for name, bound, unit in network.bounds:
        tone = "" if bound.allowed is None else "good" if bound.holds else "bad"
        note = "no budget" if bound.allowed is None else f"budget {bound.allowed:,}{unit}"
        found.append(Card(name, f"{bound.used:,}", unit.strip(), note, tone))
    for figures in boards:
        value, how = latency(figures)
        words = [how, energy_words(figures)] if how else [energy_words(figures)]
        found.append(Card(figures.board, value, "ms" if value != NOTHING else "", "; ".join(filter(None, words))))
    return found


def latency(figures: BoardFigures) -> tuple[str, str]:
    """Milliseconds of an inference, and how they are known."""
    if figures.latency_ms is not None:
        return _with_spread(figures.latency_ms), f"measured, n {figures.n}"
    if figures.latency_ms_modelled is not None:
        return fixed(figures.latency_ms_modelled), ", ".join(filter(None, ("modelled", likely_words(figures))))
    return NOTHING, ""


def likely_words(figures: BoardFigures) -> str:
    """What a board is likely to take, by what is known of the model, in a few words."""
    if figures.latency_ms_modelled_span is None:
        return figures.model_ratio
    low, high = figures.latency_ms_modelled_span
    return f"{fixed(low)} to {fixed(high)} ms likely"


def doubt_words(figures: BoardFigures) -> str:
    """The same, and from what."""
    if figures.latency_ms_modelled_span is None:
        return figures.model_error
    return f"{likely_words(figures)} on a board, {figures.model_error}"


def energy(figures: BoardFigures) -> tuple[str, str]:
    """Millijoules of an inference, and how they are known; what a model says has the model's uncertainty."""
    if figures.energy_mj is not None:
        return f"{_with_spread(figures.energy_mj)} mJ", f"measured, n {figures.energy.get('n', figures.n)}"
    if figures.energy_mj_modelled is not None:
        return f"{figures.energy_mj_modelled:.3f} mJ", f"modelled ({energy_doubt([figures])})"
    return NOTHING, ""


def energy_doubt(boards: Sequence[BoardFigures]) -> str:
    """By how much modelled energies may be off."""
    return " and ".join(dict.fromkeys(f"±{100 * figures.energy_share_modelled:.2g} %" for figures in boards))


def energy_words(figures: BoardFigures) -> str:
    value, how = energy(figures)
    return f"{value} {how}" if how else ""


def board_table(boards: Sequence[BoardFigures], evidence: Evidence) -> Table:
    columns = (("board", False), ("source", False), ("clock", True), ("flash", True), ("RAM", True), ("arena", True))
    columns += (("instructions", True), ("cycles", True), ("latency", True), ("energy", True), ("memory", False))
    rows = []
    for figures in boards:
        (value, how), used = latency(figures), evidence.footprint[figures.board]
        flash = used["regions"].get("flash", {}).get("size_bytes")
        cells = (
            Cell(figures.board),
            Cell(figures.source),
            Cell(f"{figures.clock_hz / 1e6:g} MHz", figures.clock_hz),
            Cell(f"{figures.flash_bytes:,} B", figures.flash_bytes, f"of {flash:,} B" if flash else ""),
            Cell(f"{figures.ram_bytes:,} B", figures.ram_bytes),
            Cell(f"{figures.arena_bytes:,} B", figures.arena_bytes, used.get("runtime", "")),
            _number(None if figures.instructions is None else figures.instructions.mean, 0),
            Cell(
                count(figures.cycles_modelled),
                figures.cycles_modelled,
                "modelled" * (figures.cycles_modelled is not None),
            ),
            Cell(f"{value} ms" if how else NOTHING, None, how),
            Cell(energy(figures)[0], None, energy(figures)[1]),
            Cell("fits" if figures.fits_memory else "does not fit"),
        )
        rows.append(Row(cells, "" if figures.fits_memory else "bad"))
    return Table(
        "An inference on each board. A virtual board is its twin in QEMU: no hardware was touched.",
        columns,
        tuple(rows),
    )


def confusion_rows(evidence: Evidence) -> Table | None:
    if evidence.accuracy is None or not evidence.accuracy.get("confusion"):
        return None
    worst = worst_confusions(evidence.accuracy["confusion"], evidence.classes)
    rows = [
        Row((Cell(row.true), Cell(row.chosen), Cell(str(row.examples)), Cell(percent(row.share, 1), row.share)))
        for row in worst.itertuples()
    ]
    columns = (("true class", False), ("taken for", False), ("examples", True), ("share of the class", True))
    return Table("The worst confusions" if rows else "No test example is told wrong", columns, tuple(rows))


def layer_table(figures: BoardFigures, evidence: Evidence) -> Table:
    """One row per op of the firmware; the slowest is marked."""
    layers, weights = evidence.layers[figures.board], _weight_bytes(evidence.footprint[figures.board])
    column = best_known(layers)
    total = float(layers[column].sum()) if column else 0.0
    has_time = column in ("cycles", "cycles_modelled")
    how = {"cycles": "measured", "cycles_modelled": "modelled", "instructions": "counted"}.get(column or "", "")
    unit = "cycles" if has_time else "instructions"
    columns = (("op", False), ("kind", False), ("kernel", False), (f"ms {how}" if has_time else "ms", True))
    columns += (
        ("share", True),
        (unit, True),
        (f"{unit}/MAC", True),
        ("MACs", True),
        ("weights B", True),
        ("arena B", True),
    )
    slowest = layers[column].idxmax() if column and len(layers) else None
    rows = []
    for at, row in layers.iterrows():
        taken = float(row[column]) if column else math.nan
        macs = _whole(row["macs"])
        stored = _whole(row["weight_bytes"]) if "weight_bytes" in layers else weights.get(int(row["index"]))
        ms = taken / figures.clock_hz * 1e3 if has_time else math.nan
        cells = (
            Cell(f"{int(row['index'])} {row['name']}", int(row["index"])),
            Cell(row["op"]),
            Cell(row["kernel"]),
            _number(ms, 4),
            Cell(percent(taken / total, 1), taken / total) if total else Cell(NOTHING),
            _number(taken, 0),
            _number(taken / macs if macs else math.nan, 2),
            _number(macs, 0),
            _number(stored, 0),
            _number(_whole(row["arena_live_bytes"]), 0),
        )
        rows.append(Row(cells, "hot" if at == slowest else ""))
    return Table(f"{figures.board} ({figures.source}); click a column to sort by it", columns, tuple(rows))


def notes(boards: Sequence[BoardFigures]) -> list[str]:
    """What is known of the modelled times, and what else the devices showed."""
    known = [f"{figures.board}, modelled time: {doubt_words(figures)}." for figures in boards if figures.model_error]
    known += [
        f"{figures.board}, model / board by kind of work: {'; '.join(figures.model_areas)}."
        for figures in boards
        if figures.model_areas
    ]
    return known + [line for figures in boards for line in figures.lines]


def _board_sentence(figures: BoardFigures) -> str:
    value, how = latency(figures)
    words = [f"{value} ms an inference {how}"] if how else []
    words += [energy_words(figures)] if energy_words(figures) else []
    words.append(
        f"flash {figures.flash_bytes:,} B, RAM {figures.ram_bytes:,} B {'fit' if figures.fits_memory else 'do not fit'}"
    )
    who = "virtual twin" if figures.source == "virtual" else figures.source
    return f"{figures.board} ({who}): {', '.join(words)}"


def _accuracy_note(network: NetworkFigures, accuracy: Mapping[str, Any] | None) -> str:
    words = []
    if network.accuracy_n and network.accuracy_int8 is not None:
        share = network.accuracy_int8
        error = math.sqrt(share * (1 - share) / network.accuracy_n)
        words.append(f"n {network.accuracy_n:,}, standard error {100 * error:.1f} points")
    if accuracy and accuracy.get("accuracy_float") is not None:
        words.append(f"float {percent(accuracy['accuracy_float'])}")
    return "; ".join(words)


def _weight_bytes(footprint: Mapping[str, Any]) -> dict[int, int]:
    """As stored, by op."""
    found = {}
    for part in footprint.get("placed", ()):
        if (match := re.match(r"constants of (\d+) ", part["what"])) is not None:
            found[int(match[1])] = part["size_bytes"]
    return found


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _number(value: float | None, digits: int) -> Cell:
    is_known = value is not None and not math.isnan(value)
    return Cell(fixed(value, digits), value) if is_known else Cell(NOTHING)


def _with_spread(value: Spread) -> str:
    return f"{value.mean:.3f}" + ("" if value.two_sigma is None else f" ± {value.two_sigma:.3f}")


def sections(has: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Anchor and name of every part of the page that there is."""
    names = {"budgets": "Budgets", "boards": "Boards", "accuracy": "Accuracy", "memory": "Memory", "layers": "Layers"}
    names |= {"pruning": "Pruning", "training": "Training", "power": "Power", "provenance": "Provenance"}
    yield from ((anchor, name) for anchor, name in names.items() if has.get(anchor, True))
