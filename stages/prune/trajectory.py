"""trajectory.csv: one row per update of the widths."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stages.graph.graph import Graph
from stages.prune.width_update import WidthStep

FIGURES = ("size_bytes", "peak_bytes", "macs", "train_loss", "task_loss", "resource_loss", "masks_changed")


@dataclass(frozen=True)
class TrajectoryRow:
    """The network after one update."""

    step: int
    update: int
    objective: str
    widths: tuple[int, ...]
    size_bytes: int
    peak_bytes: int
    macs: int
    train_loss: float
    task_loss: float | None  # not computed once the budgets hold
    resource_loss: float
    masks_changed: float

    @classmethod
    def of(cls, step: int, update: int, train_loss: float, moved: WidthStep) -> TrajectoryRow:
        used = moved.resources
        return cls(
            step=step,
            update=update,
            objective=moved.objective,
            widths=moved.widths,
            size_bytes=used.size_bytes,
            peak_bytes=used.peak_bytes,
            macs=used.macs,
            train_loss=train_loss,
            task_loss=moved.task_loss,
            resource_loss=moved.resource_loss,
            masks_changed=moved.masks_changed,
        )


def group_names(graph: Graph) -> list[str]:
    """Each channel group by the name of the op that opens it."""
    names: dict[int, str] = {}
    for op in graph.ops:
        group = graph.tensors[op.outputs[0]].group
        if group is not None:
            names.setdefault(group, op.name)
    return [names[group] for group in sorted(names)]


def write_trajectory(path: Path, rows: Sequence[TrajectoryRow], groups: Sequence[str]) -> Path:
    """One column per group, `width_<layer>`; a loss that was not computed stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "update", "objective", *(f"width_{name}" for name in groups), *FIGURES])
    for row in rows:
        figures = asdict(row)
        writer.writerow([row.step, row.update, row.objective, *row.widths, *(_cell(figures[name]) for name in FIGURES)])
    path.write_text(text.getvalue())
    return path


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
