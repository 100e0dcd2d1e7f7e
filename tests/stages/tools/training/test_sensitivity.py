"""What int8 costs, layer by layer: the layer that was spoilt on purpose is the one that is blamed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pipeline.errors import ConfigError
from pipeline.stage import Checkpoint
from stages.graph.arithmetic.float_reference import run_float
from stages.graph.graph import Graph, Quantisation
from stages.graph.record import graph_from_record, graph_to_record
from stages.qat.config import QatConfig
from stages.qat.stage import run as qat
from stages.tools.training.sensitivity import layer_costs, sensitivity
from stages.training.examples import Split, load_examples
from tests.stages.qat.small_task import CLASSES, Quiet, SmallTask, small_task

CONFIG = QatConfig(epochs=3, batch=20, learning_rate=2e-2, calibration_samples=60, threads=1)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallTask, Path]:
    folder = tmp_path_factory.mktemp("task")
    task = small_task(folder)
    checkpoint = Checkpoint(folder / "checkpoint")
    made = qat.function(
        task.features, task.network, task.architecture, config=CONFIG, out_dir=folder, progress=Quiet(),
        checkpoint=checkpoint,
    )  # fmt: skip
    return task, made.qat_network


def spoilt(graph: Graph, number: int) -> Graph:
    """The result of one op on a grid that is far too coarse."""
    tensors, index = list(graph.tensors), graph.ops[number].outputs[0]
    grid = tensors[index].quantisation
    tensors[index] = replace(tensors[index], quantisation=Quantisation((400 * grid.scale[0],), grid.zero_point))
    return replace(graph, tensors=tuple(tensors))


def test_the_layer_that_was_spoilt_is_the_one_that_costs_most(tuned: tuple[SmallTask, Path], tmp_path: Path) -> None:
    task, network = tuned
    whole = graph_from_record(torch.load(network, weights_only=True)["graph"])
    examples = load_examples(task.features, CLASSES).validation
    held = Split(examples.x[:], examples.y)
    for number in (0, 2):
        rows = layer_costs(spoilt(whole, number), held)
        worst = max(rows[:-1], key=lambda row: row.loss_increase)
        assert worst.index == number and worst.loss_increase > 0.05 and worst.logits_sqnr_db < 20
    honest = {row.index: row for row in layer_costs(whole, held)}
    assert all(abs(row.loss_increase) < 0.02 and row.logits_sqnr_db > 12 for row in honest.values())
    assert [row for row in honest.values() if row.index is not None][0].op == "INPUT"

    # An oracle for one row: the float reference with that layer's weights and result rounded by hand.
    op = whole.ops[0]
    tensors = list(whole.tensors)
    weight, grid = tensors[op.inputs[1]], tensors[op.inputs[1]].quantisation
    scale = np.array(grid.scale, np.float32).reshape(-1, 1, 1, 1)
    tensors[op.inputs[1]] = replace(weight, data=np.round(weight.data / scale) * scale)
    only = Graph(tuple(tensors), (op,), whole.inputs, op.outputs)
    first = run_float(only, held.x.permute(0, 2, 3, 1).numpy())[op.outputs[0]]
    result = tensors[op.outputs[0]].quantisation
    steps = np.clip(np.round(first / result.scale[0]) + result.zero_point[0], -128, 127) - result.zero_point[0]
    rest = Graph(whole.tensors, whole.ops[1:-1], op.outputs, whole.ops[-1].inputs[:1])
    logits = torch.from_numpy(run_float(rest, (steps * result.scale[0]).astype(np.float32))[rest.outputs[0]]).double()
    loss = float(torch.nn.functional.cross_entropy(logits.reshape(-1, CLASSES), held.y))
    assert honest[0].loss == pytest.approx(loss, abs=2e-4)

    torch.save({"graph": graph_to_record(spoilt(whole, 2))}, tmp_path / "qat.pt")
    artifacts = {"features": task.features, "qat_network": tmp_path / "qat.pt"}
    answer = sensitivity({"qat": CONFIG}, artifacts, 100, tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "sensitivity.csv")
    assert len(table) == len(rows) == len(answer.record) and table["op"].iloc[-1] == "ALL"
    assert answer.text.splitlines()[0] == "each layer alone on its int8 grids, 100 validation examples, worst first"
    assert answer.text.splitlines()[2].startswith(whole.ops[2].name)
    assert (tmp_path / "out" / "sensitivity.svg").read_text().startswith("<svg")
    assert (tmp_path / "out" / "sensitivity.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file, needed a folder"):
        sensitivity({"qat": CONFIG}, artifacts, 100, tmp_path / "file")
