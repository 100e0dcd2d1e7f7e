"""The figures of the pruning run, as in the paper: how the network fell to its budgets, and what became of its layers.

Everything here is counted or comes from the training, nothing from a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.nets.config import BudgetConfig
from stages.report.figures import read_rows
from stages.report.plot import COLOURS, Series, line_plot, pair_bars, ratio_plot

Rows = Sequence[Mapping[str, str]]
_RESOURCES = {"size_bytes": "size", "peak_bytes": "peak memory", "macs": "MACs"}
_PER_LAYER = {
    "memory_bytes": ("bytes alive while each op runs", "bytes"),
    "macs": ("multiply-accumulates of each op", "MACs"),
    "size_bytes": ("weights and biases of each op", "bytes"),
}


def pruning_figures(trajectory: Path, pruned_layers: Path, budget: BudgetConfig) -> dict[str, str]:
    """SVG by name; a network that was never updated (uniform scaling, or nothing to prune) has no trajectory."""
    steps, layers = read_rows(trajectory), read_rows(pruned_layers)
    updated = [row for row in steps if row["masks_changed"] != ""]
    start = [row for row in steps if row["step"] == "0"]
    drawn = {
        "pruning_resources": _resources([*start, *updated], budget) if updated else "",
        "pruning_losses": _losses(steps),
        "pruning_masks": _masks(updated),
        "pruning_widths": _widths(layers),
        **{f"pruning_{column}": _layers(layers, column) for column in _PER_LAYER},
    }
    return {name: svg for name, svg in drawn.items() if svg}


def _resources(steps: Rows, budget: BudgetConfig) -> str:
    """Each resource over its budget; without a budget over what the network needs at the end."""
    lines = []
    for (column, name), colour in zip(_RESOURCES.items(), COLOURS, strict=False):
        limit = budget.limits.get(column)
        words = name if limit is not None else f"{name} (no budget)"
        lines.append(Series(words, _points(steps, column, limit or _last(steps, column)), colour))
        if column == "peak_bytes":
            points = _points(steps, "peak_bytes_imprecise", limit or _last(steps, column))
            if any(low[1] < exact[1] for low, exact in zip(points, lines[-1].points, strict=True)):
                lines.append(Series(f"{name}, imprecise", points, colour, dashed=True))
    return ratio_plot("Pruning: resources over their budgets", "training step", "used / budget", lines)


def _losses(steps: Rows) -> str:
    lines = [
        Series("training loss (smoothed labels)", _points(steps, "train_loss"), COLOURS[0]),
        Series("P_TSK (validation)", _points(steps, "task_loss"), COLOURS[1]),
    ]
    return line_plot("Pruning: losses", "training step", "cross-entropy", [line for line in lines if line.points])


def _masks(steps: Rows) -> str:
    points = _points(steps, "masks_changed", 0.01)
    return line_plot(
        "Pruning: channels masked or unmasked per update", "training step", "%", [Series("changed", points, COLOURS[0])]
    )


def _widths(layers: Rows) -> str:
    """Channels of the layers that have weights."""
    weighted = [row for row in layers if int(row["size_bytes_before"]) > 0]
    return _bars("Channels of each layer", "channels", weighted, "channels")


def _layers(layers: Rows, column: str) -> str:
    title, unit = _PER_LAYER[column]
    return _bars(f"Before and after pruning: {title}", unit, layers, column)


def _bars(title: str, unit: str, rows: Rows, column: str) -> str:
    before, after = ([int(row[f"{column}_{when}"]) for row in rows] for when in ("before", "after"))
    return pair_bars(title, unit, [row["name"] for row in rows], before, after)


def _points(steps: Rows, column: str, unit: float = 1.0) -> list[tuple[float, float]]:
    """A value that was not computed leaves a gap."""
    return [(float(row["step"]), float(row[column]) / unit) for row in steps if row[column] != ""]


def _last(steps: Rows, column: str) -> float:
    return float(steps[-1][column]) if steps else 1.0
