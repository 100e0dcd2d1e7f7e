"""evaluate: how often an int8 .tflite is right on one split of a data set, with the arithmetic of the runtime.

Clips and pictures are opened as prepare opens them, standardised by what the network was trained with (the note in its
file, see `stages.graph.tflite.task`), put on its input's grid and run by the batch engine, whose bits are TensorFlow
Lite Micro's; batches are spread over all cores. So the accuracy of a run's export comes out again, to the example.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data import SPLITS, Corpus, ImageSet
from data.sounds.mfcc import MfccSettings, one_thread
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer, Progress, read_json
from pipeline.text import aligned, csv_text
from stages.graph.arithmetic.int8_batch import batch_network
from stages.graph.arithmetic.int8_pointwise import on_grid
from stages.graph.graph import Graph
from stages.graph.simplify.lowering import lowered
from stages.graph.tflite.float_edges import require_int8, strip_float_edges
from stages.graph.tflite.reader import load_named, read_tflite
from stages.graph.tflite.task import NOTE, SoundFeatures, Task, read_task, task_of
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.dataset import recipe_for, standardise
from stages.prepare.source import open_data
from stages.prepare.workers import spread
from stages.tools.output_file import write_atomically

BATCH = 64  # examples a task
_MOST_CLASSES_SHOWN = 16  # as a matrix on a terminal
_COLOURS = 3


@dataclass(frozen=True, eq=False)
class Prediction:
    """One split and what the network says to it; both by the numbers of `classes`."""

    classes: tuple[str, ...]
    labels: np.ndarray
    chosen: np.ndarray

    @property
    def confusion(self) -> np.ndarray:
        """[true class][chosen class]"""
        counts = np.zeros((len(self.classes), len(self.classes)), np.int64)
        np.add.at(counts, (self.labels, self.chosen), 1)
        return counts


def evaluate(
    model: Path,
    data: DataConfig,
    split: str,
    progress: Progress,
    out: Path | None = None,
    task: Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Answer:
    """Evaluate a file; `task` (a dataset.json), or `mean` and `std` of pictures, say what the file does not."""
    if split not in SPLITS:
        raise ConfigError(f"--split {split}: unknown, needed one of {', '.join(SPLITS)}")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file, needed a folder; choose another name")
    name, content = load_named(model)
    graph = strip_float_edges(read_tflite(content, name=name)).graph
    require_int8(graph, name)
    graph = lowered(graph)
    given = _task(name, content, graph, task, mean, std)
    if not isinstance(given.features, SoundFeatures) and data.image_px is None:
        data = data.model_copy(update={"image_px": given.features.image_px})
    source = open_data(data, progress)
    begin = time.monotonic()
    found = predicted(graph, given, source, split, progress, name)
    record = _record(found) | {
        "model_sha256": hashlib.sha256(content).hexdigest(),
        "data_source": source.source,
        "split": split,
        "seconds": round(time.monotonic() - begin, 3),
    }
    if out is not None:
        _write(out, found, record)
    return Answer(_text(name, found, record), record)


def predicted(
    graph: Graph, task: Task, source: Corpus | ImageSet, split: str, progress: Progress, name: str = "model"
) -> Prediction:
    """What the network chooses for every example of a split, in terms of the data's classes."""
    recipe = recipe_for(source, front_end(task))
    entry, labels = graph.tensors[graph.inputs[0]], source.splits[split].labels
    is_heard = isinstance(source, Corpus)
    if is_heard != isinstance(task.features, SoundFeatures) or entry.elements != np.prod(recipe.shape):
        kind = "sounds" if is_heard else "pictures"
        found = f"its input is {'x'.join(map(str, entry.shape[1:]))}, the data are {kind} of"
        raise StageError(f"{name}: {found} {'x'.join(map(str, recipe.shape))}, needed the same; choose other --data")
    number_of = _class_numbers(name, graph, task, source.classes)
    mean, std = (np.array(values, np.float32) for values in (task.feature_mean, task.feature_std))
    with one_thread():  # before the processes are forked: those share no pool of threads
        network = batch_network(graph)

        def chosen(number: int) -> np.ndarray:
            rows = recipe.rows(split, number * BATCH, (number + 1) * BATCH)
            features = recipe.convert(rows).astype(np.float32)
            standardise(features, recipe.standardised_axis, mean, std)
            scores = network(on_grid(features, entry)).reshape(len(rows), -1)
            is_class = scores.shape[1] == 1 and scores.dtype == np.int32  # the network ends with an ARG_MAX
            return number_of[scores[:, 0] if is_class else scores.argmax(1)]

        progress.start(len(labels), "example")
        parts = []
        for part in spread(chosen, -(-len(labels) // BATCH)):
            parts.append(part)
            progress.advance(len(part))
    return Prediction(source.classes, labels, np.concatenate(parts))


def front_end(task: Task) -> MfccSettings:
    """Of pictures nobody looks at them."""
    if isinstance(task.features, SoundFeatures):
        return MfccSettings(**task.features.model_dump())
    return PrepareConfig().settings()


def _class_numbers(name: str, graph: Graph, task: Task, classes: Sequence[str]) -> np.ndarray:
    """Output of the network -> class of the data; they may stand in another order there."""
    result = graph.tensors[graph.outputs[0]]
    outputs = len(task.classes) if result.dtype == "int32" and result.elements == 1 else result.elements
    if outputs != len(task.classes) or set(task.classes) != set(classes):
        odd = ", ".join(sorted(set(task.classes) ^ set(classes))[:3]) or f"{outputs} outputs"
        found = f"{len(task.classes)} classes, the data {len(classes)} ({odd} not in both)"
        raise StageError(f"{name}: the network knows {found}, needed the same classes; choose other --data")
    return np.array([list(classes).index(each) for each in task.classes], np.int64)


def _task(
    name: str,
    content: bytes,
    graph: Graph,
    file: Path | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Task:
    """What was asked for, else what the file says."""
    if file is not None:
        return task_of(read_json(file), str(file))
    own = read_task(content)
    if mean is None and std is None:
        if own is None:
            needed = "--task dataset.json of the run that made it, or for pictures --mean and --std of each colour"
            raise ConfigError(f"{name}: says nothing of its front end (no metadata {NOTE}), needed {needed}")
        return own
    if mean is None or std is None or {len(mean), len(std)} - {1, _COLOURS} or min(std) <= 0:
        raise ConfigError("--mean, --std: needed both, one number or three (red,green,blue of 0 to 255), --std above 0")
    entry, result = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    if len(entry.shape) != 4 or entry.shape[1] != entry.shape[2] or entry.shape[3] != _COLOURS:
        found = "x".join(map(str, entry.shape[1:]))
        raise ConfigError(f"{name}: its input is {found}, needed square pictures in colour for --mean and --std")
    classes = own.classes if own else tuple(map(str, range(result.elements)))
    record = {"classes": classes, "sample_rate_hz": None, "features": {"image_px": entry.shape[1]}}
    spread_out = {
        key: [float(values[colour % len(values)]) for colour in range(_COLOURS)]
        for key, values in (("feature_mean", mean), ("feature_std", std))
    }
    return task_of({**record, **spread_out}, "--mean, --std")


def standard_error(share: float, count: int) -> float:
    """Of a share that was counted."""
    return math.sqrt(share * (1 - share) / count)


def _record(found: Prediction) -> dict[str, Any]:
    counts, right = np.bincount(found.labels, minlength=len(found.classes)), found.labels == found.chosen
    per_class = {}
    for number, name in enumerate(found.classes):
        n = int(counts[number])
        share = float(right[found.labels == number].mean()) if n else None
        error = standard_error(share, n) if share is not None else None
        per_class[name] = {"n": n, "accuracy": share, "standard_error": error}
    accuracy = float(right.mean())
    return {
        "accuracy": accuracy,
        "standard_error": standard_error(accuracy, len(right)),
        "n": len(right),
        "right": int(right.sum()),
        "per_class": per_class,
        "classes": list(found.classes),
        "confusion": found.confusion.tolist(),
    }


def _write(out: Path, found: Prediction, record: dict[str, Any]) -> None:
    """evaluation.csv, classes.csv, confusion.csv and predictions.csv."""
    out.mkdir(parents=True, exist_ok=True)
    one = {key: value for key, value in record.items() if not isinstance(value, dict | list)}
    rows = [{"class": name, **figures} for name, figures in record["per_class"].items()]
    matrix = [
        {"true": name, **dict(zip(found.classes, row, strict=True))}
        for name, row in zip(found.classes, record["confusion"], strict=True)
    ]
    numbered = [
        {"index": index, "label": label, "int8": chosen}
        for index, (label, chosen) in enumerate(zip(found.labels.tolist(), found.chosen.tolist(), strict=True))
    ]
    for name, table in (("evaluation", [one]), ("classes", rows), ("confusion", matrix), ("predictions", numbered)):
        write_atomically(out / f"{name}.csv", csv_text(table, list(table[0])).encode())


def _text(name: str, found: Prediction, record: dict[str, Any]) -> str:
    wrong = found.confusion * (1 - np.eye(len(found.classes), dtype=np.int64))
    lines = [("class", "n", "accuracy", "mostly taken for")]
    for number, (label, figures) in enumerate(record["per_class"].items()):
        share = "-" if figures["accuracy"] is None else f"{100 * figures['accuracy']:.2f} %"
        most = int(wrong[number].argmax())
        taken = f"{found.classes[most]} ({wrong[number, most]})" if wrong[number].any() else "-"
        lines.append((label, f"{figures['n']:,}", share, taken))
    head = (
        f"{name} on {record['data_source']}, {record['split']} split: int8 accuracy {100 * record['accuracy']:.2f} % "
        f"of {record['n']:,} examples, standard error {100 * record['standard_error']:.2f} points"
    )
    told = [head, "", *aligned(lines, (0, 3))]
    if len(found.classes) <= _MOST_CLASSES_SHOWN:
        cells = [("true, chosen:", *found.classes)]
        cells += [(label, *map(str, row)) for label, row in zip(found.classes, record["confusion"], strict=True)]
        told += ["", *aligned(cells)]
    return "\n".join(
        [*told, "", f"{record['n']:,} examples in {record['seconds']:.1f} s, bits of TensorFlow Lite Micro"]
    )
