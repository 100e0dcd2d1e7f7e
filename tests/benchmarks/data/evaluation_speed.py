"""How much faster `pipeline evaluate` is than TensorFlow Lite Micro's interpreter driven from Python.

    python -m tests.benchmarks.data.evaluation_speed MODEL.tflite [--data SOURCE] [--set data.root=FOLDER] [--clips 100]

The interpreter runs the first `--clips` examples of the test split, one after the other on one core, from features that
are computed already; `evaluate` opens the data, computes features and runs all of the split on all cores. The ratio is
that of examples a second. Both must choose the same classes.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline.api.networks import evaluate
from pipeline.stage import read_json
from stages.graph.arithmetic.int8_pointwise import on_grid
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.task import Task, read_task, task_of
from stages.prepare.config import DataConfig
from stages.prepare.dataset import recipe_for, standardise
from stages.prepare.source import open_data
from stages.tools.zoo.evaluation import front_end
from tests.stages.qat.small_task import Quiet


def first_inputs(model: Path, task: Task, data: DataConfig, count: int) -> np.ndarray:
    """Of the test split, on the grid of the network."""
    source = open_data(data, Quiet())
    recipe = recipe_for(source, front_end(task))
    features = recipe.convert(recipe.rows("test", 0, count)).astype(np.float32)
    mean, std = (np.array(values, np.float32) for values in (task.feature_mean, task.feature_std))
    standardise(features, recipe.standardised_axis, mean, std)
    graph = read_tflite(model)
    return on_grid(features, graph.tensors[graph.inputs[0]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", default="speech_commands_v0.01")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--task", type=Path)
    asked = parser.parse_args()
    settings = dict(each.removeprefix("data.").split("=", 1) for each in asked.set)
    task = read_task(asked.model) if asked.task is None else task_of(read_json(asked.task))
    assert task is not None, "the file says nothing of its front end; add --task dataset.json"
    inputs = first_inputs(asked.model, task, DataConfig(source=asked.data, **settings), asked.clips)
    begin = time.monotonic()
    graph = read_tflite(asked.model)
    slow = run_tflm(asked.model.read_bytes(), graph, inputs).reshape(len(inputs), -1).argmax(1)
    slow_s = time.monotonic() - begin
    with tempfile.TemporaryDirectory() as out:
        begin = time.monotonic()
        found = evaluate(asked.model, asked.data, set=asked.set, out=out, task=asked.task, progress=False)
        quick_s = time.monotonic() - begin
        rows = csv.DictReader((Path(out) / "predictions.csv").read_text().splitlines())
        chosen = [int(row["int8"]) for row in rows][: len(slow)]
    same = int((np.array(chosen) == slow).sum())
    rates = len(inputs) / slow_s, found.n / quick_s
    sys.stdout.write(
        f"interpreter: {rates[0]:.1f} examples/s ({len(inputs)} in {slow_s:.2f} s)\n"
        f"evaluate:    {rates[1]:.1f} examples/s ({found.n} in {quick_s:.2f} s, {found.seconds:.2f} s computing)\n"
        f"ratio {rates[1] / rates[0]:.1f}, computing alone {found.n / found.seconds / rates[0]:.1f}; "
        f"{same} of {len(slow)} classes equal\n"
        f"accuracy {100 * found.accuracy:.2f} % ± {100 * found.standard_error:.2f}\n"
    )


if __name__ == "__main__":
    main()
