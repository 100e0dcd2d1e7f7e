"""The device's roundings in torch against its integer kernels in numpy: equal, halves and all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stages.export.quantise import int8_graph
from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_reference import run_graph
from stages.qat import device_rounding as device
from stages.qat.fake_quant import FakeQuantNetwork
from tests.stages.export.backbones import quantised_inputs
from tests.stages.qat.float_graphs import GRAPHS


@pytest.mark.parametrize("factor", [0.00123, 0.0040000001, 2.0**-9, 0.25, 0.7, 1.0, 3.1, 1e-12])
def test_rescaling_rounds_twice_like_the_kernels(factor: float) -> None:
    rng = np.random.default_rng(0)
    sums = np.concatenate([rng.integers(-30_000, 30_000, 50_000), np.arange(-2000, 2000)]).astype(np.int64)
    multiplier = fp.quantised_multiplier(factor)
    expected = fp.rescale(sums, multiplier.mantissa, multiplier.shift)
    found = device.rescaled(torch.from_numpy(sums).float(), (factor,), ())
    np.testing.assert_array_equal(found.numpy(), expected)


def test_rounding_once_would_not_be_the_same() -> None:
    sums = np.arange(-30_000, 30_000)
    multiplier = fp.quantised_multiplier(0.00371234)
    twice = fp.rescale(sums.astype(np.int64), multiplier.mantissa, multiplier.shift)
    assert 0 < (np.round(sums * 0.00371234) != twice).mean() < 0.02


@pytest.mark.parametrize("zero_point", [-128, -7, 0, 127])
def test_averages_send_halves_away_from_the_stored_zero(zero_point: int) -> None:
    values = np.array([[-128, -127], [-3, -2], [-1, 0], [0, 1], [2, 3], [126, 127], [5, 5]])
    expected = np.array([-128, -3, -1, 1, 3, 127, 5]) - zero_point
    sums = torch.from_numpy((values - zero_point).sum(1)).float()
    np.testing.assert_array_equal(device.averaged(sums, torch.tensor(2.0), zero_point).numpy(), expected)


def prepared(name: str, seed: int) -> tuple[FakeQuantNetwork, torch.Tensor]:
    torch.manual_seed(seed)
    fake = FakeQuantNetwork(GRAPHS[name](seed))
    _, height, width, channels = fake.graph.tensors[0].shape
    x = torch.randn(120, channels, height, width)
    fake.calibrate(x)
    return fake, x


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", GRAPHS)
def test_in_eval_mode_the_network_has_the_bits_of_the_device(name: str, seed: int) -> None:
    fake, x = prepared(name, seed)
    exported = int8_graph(fake.quantised_graph())
    logits = exported.ops[-1].inputs[0]
    grid = exported.tensors[logits].quantisation
    assert grid is not None
    with torch.no_grad():
        steps = np.round(fake.eval()(x).numpy() / np.float32(grid.scale[0])) + grid.zero_point[0]
    computed = run_graph(exported, quantised_inputs(exported, x))[logits]
    np.testing.assert_array_equal(steps, computed)
    assert len(np.unique(computed)) > 100  # the grid is used


@pytest.mark.parametrize("name", GRAPHS)
def test_in_training_mode_the_network_is_close_to_the_device_and_every_weight_learns(name: str) -> None:
    fake, x = prepared(name, 0)
    with torch.no_grad():
        exact = fake.eval()(x)
    scores = fake.train()(x)
    grid = fake.quantised_graph().tensors[fake.graph.ops[-1].inputs[0]].quantisation
    assert grid is not None
    assert (scores - exact).abs().mean() < grid.scale[0]  # rounding once or twice: less than a step on average
    torch.nn.functional.cross_entropy(scores, torch.arange(len(x)) % 10).backward()
    for parameter in fake.parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0
