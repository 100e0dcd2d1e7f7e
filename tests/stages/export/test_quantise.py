"""From the fake-quant network to int8: the two must tell the same story."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from pipeline.stage import Checkpoint
from stages.export.evaluation import load_test_split
from stages.export.quantise import int8_graph, load_qat
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.from_torch.conversion import graph_from_torch
from stages.nets.registry import read_architecture
from stages.qat.config import QatConfig
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.quantised_network import fake_quant_network
from stages.qat.training import Tuning, train
from stages.training.examples import load_examples
from tests.stages.qat.small_task import INPUT_SHAPE, Quiet, lively_network, small_task


@pytest.mark.parametrize("seed", range(3))
def test_int8_agrees_with_the_fake_quant_network(tmp_path: Path, seed: int) -> None:
    task = small_task(tmp_path, seed)
    architecture = read_architecture(task.architecture)
    examples = load_examples(task.features, architecture.classes)
    fake = fake_quant_network(architecture, task.network)
    config = QatConfig(epochs=4, batch=20, learning_rate=2e-2, label_smoothing=0.1, calibration_samples=100, seed=seed)
    train(Tuning(fake, examples, config), Quiet(), Checkpoint(tmp_path / "checkpoint"))
    graph = int8_graph(fake.quantised_graph())
    with torch.no_grad():
        logits = fake.eval()(examples.test.x[torch.arange(len(examples.test))]).numpy()
    result = graph.ops[-1].inputs[0]
    computed = run_graph(graph, load_test_split(task.features, graph).inputs[:])[result]
    grid = graph.tensors[result].quantisation
    assert grid is not None
    apart = np.abs(computed - (np.round(logits / np.float32(grid.scale[0])) + grid.zero_point[0]))
    assert not apart.any()
    assert len(set(computed.argmax(1))) == architecture.classes  # the network does tell inputs apart


def quantised_graph() -> tuple[FakeQuantNetwork, torch.Tensor]:
    _, network = lively_network(0)
    fake = FakeQuantNetwork(graph_from_torch(network, INPUT_SHAPE))
    x = torch.randn(50, 1, *INPUT_SHAPE[:2], generator=torch.Generator().manual_seed(0))
    fake.calibrate(x)
    return fake, x


def test_weights_and_biases_are_within_half_a_step_of_the_trained_ones() -> None:
    fake, _ = quantised_graph()
    trained = fake.quantised_graph()
    graph = int8_graph(trained)
    for op in graph.ops:
        if op.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            continue
        for index in op.inputs[1:3]:
            stored, wanted = graph.tensors[index], trained.tensors[index].data
            assert stored.quantisation is not None and stored.data is not None and wanted is not None
            shape = [1] * stored.data.ndim
            shape[stored.quantisation.axis] = -1
            scale = np.array(stored.quantisation.scale).reshape(shape)
            assert (np.abs(stored.data * scale - wanted) <= 0.501 * scale).all()
        weights, bias = (graph.tensors[index] for index in op.inputs[1:3])
        assert (weights.dtype, bias.dtype) == ("int8", "int32")
        assert weights.data is not None and np.abs(weights.data.astype(int)).max() == 127


def test_a_tensor_without_a_grid_is_named() -> None:
    graph = quantised_graph()[0].quantised_graph()
    index = graph.ops[1].outputs[0]
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], quantisation=None)
    with pytest.raises(StageError, match=r"tensor blocks\.0\.depthwise: has no int8 grid; run qat again"):
        int8_graph(replace(graph, tensors=tuple(tensors)))


def test_a_bias_beyond_int32_is_refused() -> None:
    graph = quantised_graph()[0].quantised_graph()
    index = graph.ops[0].inputs[2]
    tensors = list(graph.tensors)
    data = tensors[index].data
    assert data is not None
    tensors[index] = replace(tensors[index], data=data + np.float32(1e9))
    with pytest.raises(StageError, match=r"CONV_2D stem: a bias of \S+ steps does not fit int32"):
        int8_graph(replace(graph, tensors=tuple(tensors)))


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "qat.pt"
    path.write_bytes(content)
    with pytest.raises(StageError, match=r"qat\.pt: cannot be read \(.*\); run qat again"):
        load_qat(path)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(2)}, tmp_path / "qat.pt")
    with pytest.raises(StageError, match=r"qat\.pt: cannot be read \('test_classes'\); run qat again"):
        load_qat(tmp_path / "qat.pt")
