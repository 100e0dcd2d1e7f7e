"""Does every backbone export to int8, and does int8 agree with the fake-quant network? At full size:

    python -m tests.stages.export.backbones [NAME ...] [--inputs 500]

Random weights, random data, a few QAT steps; then 500 further inputs, of which TensorFlow Lite Micro computes every
output, too. A line per network: share of logits within 1 LSB and equal, top-1 agreement, how many classes were chosen
at all, time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pipeline.stage import Checkpoint
from stages.export.planned_model import planned_model, verify
from stages.export.quantise import int8_graph
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm
from stages.nets.config import FAMILIES, NetworkConfig
from stages.nets.registry import build
from stages.qat.config import QatConfig
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.training import Tuning, train
from stages.training.examples import Examples, Split
from tests.stages.qat.small_task import Quiet

_AT_ONCE = 10
_LOGIT_SPREAD = 2.0


@dataclass(frozen=True)
class Agreement:
    """How int8, by TensorFlow Lite Micro, compares with the fake-quant network."""

    inputs: int
    classes_seen: int  # that the int8 network chooses at all
    top1: float
    within_1_lsb: float
    equal: float
    kinds: tuple[str, ...]
    only_int8: bool


def agreement(config: NetworkConfig, inputs: int, *, seed: int = 0, training_samples: int = 64) -> Agreement:
    """Train a few steps, export, verify against the runtime, compare."""
    torch.manual_seed(seed)
    x = _samples(config, training_samples + inputs, seed)
    network = _lively(build(config), x[:_AT_ONCE])
    fake = FakeQuantNetwork(graph_from_torch(network, config.input_shape))
    y = torch.arange(training_samples) % config.classes
    _spread(fake, x[:_AT_ONCE])
    recipe = QatConfig(epochs=2, batch=16, learning_rate=1e-4, label_smoothing=0.1, calibration_samples=64, seed=seed)
    split = Split(x[:training_samples], y)
    with tempfile.TemporaryDirectory() as folder:
        train(Tuning(fake, Examples(split, split, split), recipe), Quiet(), Checkpoint(Path(folder)))
    _balance(fake, x[:training_samples])
    model = planned_model(int8_graph(fake.quantised_graph()), "test")
    fake.eval()
    expected, computed = [], []
    for part in x[training_samples:].split(_AT_ONCE):
        steps = quantised_inputs(model.graph, part)
        if not expected:
            verify(model, steps[:2])  # every intermediate equals the runtime's, and so do the bytes of the arena
        with torch.no_grad():
            expected.append(fake(part).numpy())
        logits = model.graph.ops[-1].inputs[0]
        found = run_graph(model.graph, steps)
        computed.append(found[logits])
        # The runtime tells only what comes after the softmax: that must be the same for every input.
        np.testing.assert_array_equal(run_tflm(model.content, model.graph, steps), found[model.graph.outputs[0]])
    return _compared(model.graph, np.concatenate(expected), np.concatenate(computed))


def quantised_inputs(graph: Graph, x: torch.Tensor) -> np.ndarray:
    """NCHW floats as the NHWC int8 that the device is given."""
    grid = graph.tensors[graph.inputs[0]].quantisation
    assert grid is not None
    steps = np.round(x.permute(0, 2, 3, 1).numpy() / np.float32(grid.scale[0])) + grid.zero_point[0]
    return np.clip(steps, -128, 127).astype(np.int8)


def _compared(graph: Graph, expected: np.ndarray, computed: np.ndarray) -> Agreement:
    grid = graph.tensors[graph.ops[-1].inputs[0]].quantisation
    assert grid is not None
    apart = np.abs(np.round(expected / np.float32(grid.scale[0])) + grid.zero_point[0] - computed)
    chosen = computed.argmax(1)
    return Agreement(
        inputs=len(computed),
        classes_seen=len(set(chosen.tolist())),
        top1=float((chosen == expected.argmax(1)).mean()),
        within_1_lsb=float((apart <= 1).mean()),
        equal=float((apart == 0).mean()),
        kinds=tuple(sorted({op.kind for op in graph.ops})),
        only_int8=all(tensor.dtype == "int8" for tensor in graph.tensors if tensor.data is None),
    )


def _lively(network: nn.Module, x: torch.Tensor) -> nn.Module:
    """Batch statistics of these inputs: with those of a new network every layer shrinks what it is given."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
            module.weight.data.uniform_(0.7, 1.3)
            module.bias.data.normal_(0, 0.2)
    with torch.no_grad():
        network.train()(x)
    return network.eval()


def _spread(fake: FakeQuantNetwork, x: torch.Tensor) -> None:
    """Logits as wide as those of a trained network; a thousand equal ones would make the runtime's SOFTMAX abort."""
    last = max(fake.biases, key=int)
    with fake.without_rounding(), torch.no_grad():
        factor = _LOGIT_SPREAD / fake(x).std()
        fake.weights[last] *= factor
        fake.biases[last] *= factor


def _balance(fake: FakeQuantNetwork, x: torch.Tensor) -> None:
    """Give all classes the same mean logit: a random classifier prefers one of them, whatever it sees."""
    last = max(fake.biases, key=int)
    with torch.no_grad():
        fake.biases[last] -= torch.cat([fake(part) for part in x.split(_AT_ONCE)]).mean(0)
    fake.calibrate(x)


def _samples(config: NetworkConfig, count: int, seed: int) -> torch.Tensor:
    """Smooth random images, each with its own contrast and colour: white noise looks alike to any network."""
    height, width, channels = config.input_shape
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, channels, 5, 5, generator=rng) + torch.randn(count, channels, 1, 1, generator=rng)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    noise = 0.3 * torch.randn(count, channels, height, width, generator=rng)
    return (smooth + noise).contiguous(memory_format=torch.channels_last)


def rows(names: list[str], inputs: int) -> Iterator[str]:
    """The table, line by line."""
    yield f"{'network':16} {'input':>12} {'top-1':>7} {'<=1 LSB':>8} {'equal':>8} {'classes':>8} {'seconds':>8}"
    for name in names:
        config = NetworkConfig(name=name)  # type: ignore[call-arg]
        start = time.monotonic()
        found = agreement(config, inputs)
        shape = "x".join(map(str, config.input_shape))
        figures = f"{found.top1:7.2%} {found.within_1_lsb:8.3%} {found.equal:8.3%} {found.classes_seen:8}"
        yield f"{name:16} {shape:>12} {figures} {time.monotonic() - start:8.0f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--inputs", type=int, default=500)
    given = parser.parse_args()
    for line in rows(given.names, given.inputs):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
