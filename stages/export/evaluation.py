"""How good the int8 model is on the test split, and the inputs that every later step is checked with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.examples.stored import StoredSplit, stored_labels, stored_split
from pipeline.errors import StageError
from stages.graph.arithmetic.int8_batch import batch_network
from stages.graph.arithmetic.int8_pointwise import on_grid
from stages.graph.graph import Graph, Tensor

LARGEST_GAP_POINTS = 0.2  # between int8 and the fake-quant network: beyond it something other than chance is at work


@dataclass(frozen=True, eq=False)
class Labelled:
    """Quantised inputs (N, H, W, C) int8 and their classes, -1 where there is none."""

    inputs: np.ndarray | OnGrid
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class OnGrid:
    """Stored features as int8 inputs of a network, some at a time: a test split may be larger than the memory."""

    features: StoredSplit
    source: Tensor  # the network's input
    dtype = np.dtype(np.int8)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.features), *self.source.shape[1:])

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, chosen: slice | list[int]) -> np.ndarray:
        return on_grid(self.features[chosen], self.source)


@dataclass(frozen=True)
class AccuracyRecord:
    """The contents of accuracy.json; shares of 1."""

    accuracy_int8: float
    n: int
    engine: str
    accuracy_float: float
    accuracy_fake_quant: float
    agreement_float: float  # how often int8 chooses the same class
    agreement_fake_quant: float
    gap_points: float  # accuracy of int8 less that of the fake-quant network, in percentage points
    warning: str  # empty when the gap is within what export promises
    per_class: dict[str, float | None]  # None: no test sample of that class
    confusion: list[list[int]]  # [true class][chosen class]


def load_test_split(features: Path, graph: Graph) -> Labelled:
    """The test features on the grid of the network's input."""
    x, labels = stored_split(features, "test"), stored_labels(features, "test")
    source = graph.tensors[graph.inputs[0]]
    if len(x) == 0 or len(x) != len(labels) or np.prod(x.shape[1:]) != source.elements:
        raise StageError(
            f"{features}: test split has {x.shape} and {labels.shape}, needed (N, *{source.shape[1:]}) and (N,)"
        )
    return Labelled(OnGrid(x, source), labels)


def golden_inputs(split: Labelled, count: int) -> Labelled:
    """`count` test samples, taken from the classes in turn, then the two extreme inputs."""
    position: dict[int, int] = {}
    turns = []
    for index, label in enumerate(split.labels.tolist()):
        turns.append((position.get(label, 0), label, index))
        position[label] = position.get(label, 0) + 1
    chosen = [index for _, _, index in sorted(turns)[:count]]
    extremes = [np.full((1, *split.inputs.shape[1:]), value, np.int8) for value in (-128, 127)]
    inputs = np.concatenate([split.inputs[chosen], *extremes])
    return Labelled(inputs, np.concatenate([split.labels[chosen], [-1, -1]]))


def int8_classes(graph: Graph, split: Labelled) -> np.ndarray:
    """What is chosen for each example, with the bits of the reference, which `verify` holds against the runtime's."""
    scores = batch_network(graph)(split.inputs)
    chosen: np.ndarray = scores.reshape(len(scores), -1).argmax(1)
    return chosen


def measured_accuracy(
    chosen: np.ndarray,
    split: Labelled,
    classes: Sequence[str],
    float_classes: np.ndarray,
    fake_quant_classes: np.ndarray,
) -> AccuracyRecord:
    """Accuracy over the whole split; `chosen` are its `int8_classes`."""
    if len(float_classes) != len(split.labels) or split.labels.min() < 0 or split.labels.max() >= len(classes):
        raise StageError(f"{len(split.labels)} test samples do not belong to this qat.pt and dataset; run qat again")
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (split.labels, chosen), 1)
    per_class = {
        name: float(confusion[row, row] / confusion[row].sum()) if confusion[row].any() else None
        for row, name in enumerate(classes)
    }
    accuracy_int8, accuracy_fake_quant = (
        float((found == split.labels).mean()) for found in (chosen, fake_quant_classes)
    )
    gap_points = 100 * (accuracy_int8 - accuracy_fake_quant)
    return AccuracyRecord(
        accuracy_int8=accuracy_int8,
        n=len(chosen),
        engine="int8_batch, equal to TensorFlow Lite Micro bit for bit on the golden inputs",
        accuracy_float=float((float_classes == split.labels).mean()),
        accuracy_fake_quant=accuracy_fake_quant,
        agreement_float=float((chosen == float_classes).mean()),
        agreement_fake_quant=float((chosen == fake_quant_classes).mean()),
        gap_points=gap_points,
        warning=_warning(gap_points),
        per_class=per_class,
        confusion=confusion.tolist(),
    )


def write_predictions(path: Path, split: Labelled, chosen: np.ndarray, float_classes: np.ndarray) -> Path:
    """predictions.csv: the class of each test example and the chosen ones, by number; for paired tests of two runs."""
    rows = np.stack([np.arange(len(chosen)), split.labels, chosen, float_classes], axis=1)
    np.savetxt(path, rows, fmt="%d", delimiter=",", header="index,label,int8,float", comments="")
    return path


def _warning(gap_points: float) -> str:
    if abs(gap_points) <= LARGEST_GAP_POINTS:
        return ""
    found = f"int8 accuracy differs by {gap_points:+.2f} points from the fake-quant network's"
    return f"{found}, expected within {LARGEST_GAP_POINTS}; layer_error.csv shows which layer hurts"
