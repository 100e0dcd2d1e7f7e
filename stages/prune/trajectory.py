"""trajectory.csv: the network at the start, after every update of the widths, and once small after every epoch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stages.graph.graph import NO_GROUP, Graph
from stages.graph.memory.resources import Resources
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
    """The network at one moment."""

    step: int
    update: int  # how many there were so far
    objective: str  # 'none' once the budgets hold, and where there was no update
    widths: tuple[int, ...]
    size_bytes: int
    peak_bytes: int
    macs: int
    train_loss: float | None  # of the last step, of a small network's last epoch; there is none at the start
    task_loss: float | None  # not computed once the budgets hold, or without P_TSK
    resource_loss: float
    masks_changed: float | None  # share of channels; None where there was no update
    peak_bytes_imprecise: int
    task_pull: float | None  # mean over the groups of alpha_TSK * dP_TSK/dpi as it was used, before the clip
    resource_pull: float

    @classmethod
    def of(cls, step: int, update: int, train_loss: float, moved: WidthStep) -> TrajectoryRow:
        """After an update."""
        move = moved.move or AT_REST
        return replace(
            cls.between_updates(step, update, train_loss, moved.widths, moved.resources),
            **asdict(move),
            masks_changed=moved.masks_changed,
        )

    @classmethod
    def between_updates(
        cls, step: int, update: int, train_loss: float | None, widths: tuple[int, ...], used: Resources
    ) -> TrajectoryRow:
        """Before the first one, or behind the last."""
        return cls(
            step=step,
            update=update,
            widths=widths,
            **asdict(used),
            train_loss=train_loss,
            masks_changed=None,
            **asdict(AT_REST),
        )


def group_names(graph: Graph) -> list[str]:
    """Each channel group by the name of the op that opens it; with its first channel there, if it opens several."""
    names: dict[int, str] = {}
    for op in graph.ops:
        channels = graph.tensors[op.outputs[0]].channels
        assert channels is not None
        groups = channels[:, 0].tolist()
        opened = [group for group in dict.fromkeys(groups) if group != NO_GROUP and group not in names]
        for group in opened:
            names[group] = op.name if len(opened) == 1 else f"{op.name}.{groups.index(group)}"
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
