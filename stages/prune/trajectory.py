"""trajectory.csv: one row per update of the widths."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stages.graph.graph import Graph
from stages.prune.width_update import Move, WidthStep

FIGURES = (
    "size_bytes",
    "peak_bytes",
    "macs",
    "train_loss",
    "task_loss",
    "resource_loss",
    "masks_changed",
    "peak_bytes_imprecise",
    "task_pull",
    "resource_pull",
)
AT_REST = Move("none", None, 0.0, None, 0.0)


@dataclass(frozen=True)
class TrajectoryRow:
    """The network after one update."""

    step: int
    update: int
    objective: str  # 'none' once the budgets hold
    widths: tuple[int, ...]
    size_bytes: int
    peak_bytes: int
    macs: int
    train_loss: float
    task_loss: float | None  # not computed once the budgets hold, or without P_TSK
    resource_loss: float
    masks_changed: float
    peak_bytes_imprecise: int
    task_pull: float | None  # mean over the groups of alpha_TSK * dP_TSK/dpi as it was used, before the clip
    resource_pull: float

    @classmethod
    def of(cls, step: int, update: int, train_loss: float, moved: WidthStep) -> TrajectoryRow:
        used, move = moved.resources, moved.move or AT_REST
        return cls(
            step=step,
            update=update,
            objective=move.objective,
            widths=moved.widths,
            size_bytes=used.size_bytes,
            peak_bytes=used.peak_bytes,
            macs=used.macs,
            train_loss=train_loss,
            task_loss=move.task_loss,
            resource_loss=move.resource_loss,
            masks_changed=moved.masks_changed,
            peak_bytes_imprecise=used.peak_bytes_imprecise,
            task_pull=move.task_pull,
            resource_pull=move.resource_pull,
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
