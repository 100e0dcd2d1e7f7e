"""The report as plain text for the terminal, 100 columns wide: the network against its budgets, boards, verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from pipeline.text import aligned, shown
from stages.report.content import doubt_words, energy_doubt, verdict
from stages.report.device_budgets import device_bounds
from stages.report.figures import BoardFigures, Bound, NetworkFigures, Spread

WIDTH = 100
_NONE = "-"
_SPARED = ("n", "MHz", "instructions", "mJ measured")  # in a table too wide; a note or the CSV files have them


def table_text(network: NetworkFigures, boards: Sequence[BoardFigures]) -> str:
    """The whole text, ending with a line feed."""
    judged = verdict(network, boards)
    lines = [
        _headline(network),
        "",
        *_indented([["resource", "used", "budget", ""], *_resource_rows(network)]),
        *_pruned_lines(network),
        *_device_lines(network, boards),
        "",
        *_indented(_board_rows(boards)),
        *(f"  {shown(line)}" for figures in boards for line in figures.lines),
        "",
        f"{judged.headline}: {judged.sentence}",
        *_notes(boards),
    ]
    return "\n".join(part.rstrip() for line in lines for part in _wrapped(line)) + "\n"


def _headline(network: NetworkFigures) -> str:
    name = shown(network.experiment)
    if network.accuracy_int8 is None:
        return f"{name}: no test examples, so no accuracy"
    counted = f" of {network.accuracy_n} test examples" if network.accuracy_n is not None else ""
    return f"{name} on {shown(network.data_source)}: int8 accuracy {100 * network.accuracy_int8:.2f} %{counted}"


def _device_lines(network: NetworkFigures, boards: Sequence[BoardFigures]) -> list[str]:
    rows = [bound.cells for bound in device_bounds(network, boards)]
    return ["", *_indented([["firmware", "budget", "predicted", "found", ""], *rows])] if rows else []


def _pruned_lines(network: NetworkFigures) -> list[str]:
    if network.unpruned_macs is None or network.macs_trained_relative is None:
        return []
    share = f"{100 * network.macs_trained_relative:.0f} % of the MACs of training all of it"
    return [f"  (pruned from {network.unpruned_macs:,} MACs; training took {share})"]


def _resource_rows(network: NetworkFigures) -> list[list[str]]:
    def row(title: str, bound: Bound, unit: str) -> list[str]:
        if bound.allowed is None:
            return [title, f"{bound.used:,}{unit}", _NONE, ""]
        over = bound.used - bound.allowed
        verdict = "holds" if bound.holds else f"exceeded by {over:,}{unit}"
        return [title, f"{bound.used:,}{unit}", f"{bound.allowed:,}{unit}", verdict]

    return [row(title, bound, unit) for title, bound, unit in network.bounds]


_COLUMNS: dict[str, Callable[[BoardFigures], str]] = {
    "board": lambda figures: figures.board,
    "source": lambda figures: figures.source,
    "MHz": lambda figures: f"{figures.clock_hz / 1e6:g}",
    "flash B": lambda figures: f"{figures.flash_bytes:,}",
    "RAM B": lambda figures: f"{figures.ram_bytes:,}",
    "instructions": lambda figures: _fixed(figures.instructions and figures.instructions.mean, 0),
    "ms modelled": lambda figures: _fixed(figures.latency_ms_modelled),
    "mJ modelled": lambda figures: _fixed(figures.energy_mj_modelled),
    "ms measured": lambda figures: _measured(figures.latency_ms),
    "mJ measured": lambda figures: _measured(figures.energy_mj),
    "n": lambda figures: str(figures.n),
}


def _board_rows(boards: Sequence[BoardFigures]) -> list[list[str]]:
    """A column that no board has a value for is left out: what is modelled and what is measured never share one."""
    columns = {title: [cell(figures) for figures in boards] for title, cell in _COLUMNS.items()}
    held = {title: cells for title, cells in columns.items() if set(cells) != {_NONE}}
    for title in _SPARED:
        if sum(2 + max(map(len, (name, *cells))) for name, cells in held.items()) > WIDTH:
            held.pop(title, None)
    return [list(held), *(list(row) for row in zip(*held.values(), strict=True))]


def _fixed(value: float | None, digits: int = 3) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"


def _measured(value: Spread | None) -> str:
    if value is None:
        return _NONE
    return f"{value.mean:.3f}" + ("" if value.two_sigma is None else f" ± {value.two_sigma:.3f}")


def _notes(boards: Sequence[BoardFigures]) -> list[str]:
    notes = []
    virtual = [figures for figures in boards if figures.source == "virtual"]
    if virtual:
        notes.append(
            "virtual: instructions are counted on a QEMU twin, time and energy are modelled (energy "
            f"{energy_doubt(virtual)}); no board was measured. Outputs are bit-identical to TensorFlow Lite Micro's."
        )
    known = [f"  {figures.board}: {doubt_words(figures)}" for figures in boards if figures.model_error]
    known += [f"  {figures.board}: {'; '.join(figures.model_areas)}" for figures in boards if figures.model_areas]
    notes += ["Known of the modelled time:", *known] if known else []
    if any(figures.source == "virtual" and figures.cycles_modelled is None for figures in boards):
        notes.append(
            "cycles are not modelled: the profiler needs a C compiler (apt-get install gcc, then --force measure)."
        )
    notes += [_energy_note(figures) for figures in boards if figures.energy["source"] == "measured"]
    return notes


def _energy_note(figures: BoardFigures) -> str:
    energy = figures.energy
    idle = "" if energy["idle_mw"] is None else f", idle {energy['idle_mw']:.1f} mW"
    amount = f"{energy['energy_mj']:.4g} ± {energy['uncertainty_mj']:.2g} mJ an inference"
    return f"{figures.board}: energy measured, {amount}, n {energy['n']}{idle}; {shown(energy['instrument'])}"


def _indented(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"  {line}" for line in aligned(rows)]


def _wrapped(line: str) -> list[str]:
    """Sentences are broken; tables are not, they are narrow enough."""
    if len(line) <= WIDTH or "  " in line.strip():
        return [line]
    return textwrap.wrap(line, WIDTH, initial_indent="", subsequent_indent="  ", break_long_words=False)
