"""The report as plain text for the terminal: the network against its budgets, then every board."""

from __future__ import annotations

from collections.abc import Sequence

from stages.report.figures import BoardFigures, Bound, NetworkFigures, Spread

_NONE = "-"


def table_text(network: NetworkFigures, boards: Sequence[BoardFigures]) -> str:
    """The whole text, ending with a line feed."""
    lines = [
        _headline(network),
        "",
        *_aligned([["resource", "used", "budget", ""], *_resource_rows(network)]),
        *_pruned_lines(network),
        "",
        *_aligned([_BOARD_TITLES, *(_board_row(figures) for figures in boards)]),
        *("  " + line for figures in boards for line in figures.lines),
        "",
        *_notes(boards),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(network: NetworkFigures) -> str:
    if network.accuracy_int8 is None:
        return f"{network.experiment}: no test examples, so no accuracy"
    counted = f" of {network.accuracy_n} test examples" if network.accuracy_n is not None else ""
    return f"{network.experiment} on {network.data_source}: int8 accuracy {100 * network.accuracy_int8:.2f} %{counted}"


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

    return [row("peak memory", network.peak, " B"), row("size", network.size, " B"), row("MACs", network.macs, "")]


_BOARD_TITLES = [
    "board",
    "source",
    "MHz",
    "flash B",
    "RAM B",
    "instructions",
    "cycles modelled",
    "ms modelled",
    "mJ modelled",
    "ms measured",
    "n",
]


def _board_row(figures: BoardFigures) -> list[str]:
    return [
        figures.board,
        figures.source,
        f"{figures.clock_hz / 1e6:g}",
        f"{figures.flash_bytes:,}",
        f"{figures.ram_bytes:,}",
        _NONE if figures.instructions is None else f"{figures.instructions.mean:,.0f}",
        _NONE if figures.cycles_modelled is None else f"{figures.cycles_modelled:,}",
        _NONE if figures.latency_ms_modelled is None else f"{figures.latency_ms_modelled:.3f}",
        _NONE if figures.energy_mj_modelled is None else f"{figures.energy_mj_modelled:.3f}",
        _measured(figures.latency_ms),
        str(figures.n),
    ]


def _measured(value: Spread | None) -> str:
    if value is None:
        return _NONE
    return f"{value.mean:.3f}" + ("" if value.two_sigma is None else f" ± {value.two_sigma:.3f}")


def _notes(boards: Sequence[BoardFigures]) -> list[str]:
    notes = []
    if any(figures.source == "virtual" for figures in boards):
        notes.append("source virtual: instructions counted on a QEMU twin; no board was measured.")
        notes.append(
            "modelled: cycles from a Cortex-M7 model with cache line fills, ms at the board's clock, mJ at its typical"
        )
        notes.append("power; outputs are bit-identical to TensorFlow Lite Micro's. What is known of the model's error:")
        notes += [f"  {figures.board}: {figures.model_error}" for figures in boards if figures.model_error]
    if any(figures.source == "virtual" and figures.cycles_modelled is None for figures in boards):
        notes.append(
            "cycles are not modelled: the profiler needs a C compiler (apt-get install gcc, then --force measure)."
        )
    notes += [_energy_note(figures) for figures in boards if figures.energy["source"] is not None]
    if not all(figures.fits_memory for figures in boards):
        names = ", ".join(figures.board for figures in boards if not figures.fits_memory)
        notes.append(f"the image does not fit the memory of: {names}.")
    return notes


def _energy_note(figures: BoardFigures) -> str:
    energy = figures.energy
    idle = "" if energy["idle_mw"] is None else f", idle {energy['idle_mw']:.1f} mW"
    doubt, instrument = "", energy["instrument"]
    if energy["source"] != "measured":
        doubt, instrument = " (no board was measured)", f"simulated {instrument}"
    amount = f"{energy['energy_mj']:.4g} ± {energy['uncertainty_mj']:.2g} mJ an inference"
    return f"{figures.board}: energy {energy['source']}{doubt}, {amount}, n {energy['n']}{idle}; {instrument}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right, the first column to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
