"""The fake-quant network: equal to the float one when it does not round, on the int8 grid when it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stages.graph.from_torch import graph_from_torch
from stages.qat.fake_quant import FakeQuantNetwork, calibrated_grid
from tests.stages.qat.small_task import INPUT_SHAPE, lively_network


class Residual(nn.Module):
    """Everything that the DS-CNN has not: Add, max and average pooling, ReLU6, a flattened map."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.act = nn.ReLU6()
        self.small = nn.MaxPool2d(2)
        self.mean = nn.AvgPool2d((2, 2), (2, 1))
        self.head = nn.Linear(6 * 2 * 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.act(self.first(x))
        total = torch.relu(self.second(stem) + stem)
        return self.head(self.mean(self.small(total)).flatten(1))


def dscnn(seed: int = 0) -> tuple[nn.Module, FakeQuantNetwork, torch.Tensor]:
    _, network = lively_network(seed)
    x = torch.randn(64, 1, *INPUT_SHAPE[:2], generator=torch.Generator().manual_seed(seed))
    return network, FakeQuantNetwork(graph_from_torch(network, INPUT_SHAPE)), x


def test_without_rounding_it_is_the_float_network() -> None:
    network, fake, x = dscnn()
    fake.quantises = False
    with torch.no_grad():
        torch.testing.assert_close(fake(x), network(x), rtol=1e-4, atol=1e-5)


def test_without_rounding_a_residual_network_is_the_float_network() -> None:
    torch.manual_seed(3)
    network = Residual().eval()
    x = torch.randn(8, 2, 9, 8) * 3
    fake = FakeQuantNetwork(graph_from_torch(network, (9, 8, 2)))
    fake.quantises = False
    with torch.no_grad():
        torch.testing.assert_close(fake(x), network(x), rtol=1e-4, atol=1e-5)


def test_with_rounding_it_stays_close_to_the_float_network() -> None:
    network, fake, x = dscnn()
    fake.calibrate(x)
    with torch.no_grad():
        exact, rounded = network(x), fake(x)
    assert 0 < (exact - rounded).abs().max() < 0.05 * exact.abs().max()


def test_every_activation_lies_on_its_grid() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    graph = fake.quantised_graph()
    logits_grid = graph.tensors[graph.ops[-2].outputs[0]].quantisation
    assert logits_grid is not None
    with torch.no_grad():
        steps = fake(x).numpy() / np.float32(logits_grid.scale[0]) + logits_grid.zero_point[0]
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    assert steps.min() >= -128.001 and steps.max() <= 127.001


def test_relu_grids_start_at_zero_and_pooling_keeps_its_inputs_grid() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    graph = fake.quantised_graph()
    for op in graph.ops:
        grid, before = (graph.tensors[index].quantisation for index in (op.outputs[0], op.inputs[0]))
        assert grid is not None and before is not None
        if getattr(op.options, "activation", "none") == "relu":
            assert grid.zero_point == (-128,)
        if op.kind in ("AVERAGE_POOL_2D", "RESHAPE"):
            assert grid == before
        if op.kind == "SOFTMAX":
            assert (grid.scale, grid.zero_point) == ((1 / 256,), (-128,))


def test_weights_have_a_symmetric_grid_per_channel_and_the_classifier_a_single_one() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    graph = fake.quantised_graph()
    for op in graph.ops:
        if op.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            continue
        weights = graph.tensors[op.inputs[1]]
        assert weights.quantisation is not None and weights.data is not None
        axis = 3 if op.kind == "DEPTHWISE_CONV_2D" else 0
        channels = np.moveaxis(weights.data, axis, 0).reshape(weights.data.shape[axis], -1)
        if op.kind == "FULLY_CONNECTED":
            channels = channels.reshape(1, -1)
        largest = np.abs(channels).max(1)
        assert set(weights.quantisation.zero_point) == {0}
        np.testing.assert_allclose(np.array(weights.quantisation.scale) * 127, largest, rtol=1e-5)


def test_a_channel_without_weights_keeps_its_bias_within_int32() -> None:
    network, _, x = dscnn()
    with torch.no_grad():
        network.blocks[0].pointwise.conv.weight[3] = 0
        network.blocks[0].pointwise.norm.bias[3] = 2.5
        network.blocks[0].pointwise.norm.running_mean[3] = 0
    fake = FakeQuantNetwork(graph_from_torch(network, INPUT_SHAPE))
    fake.calibrate(x)
    graph = fake.quantised_graph()
    op = graph.ops[2]
    source, weights, bias = (graph.tensors[index] for index in op.inputs)
    assert source.quantisation and weights.quantisation and bias.data is not None
    assert bias.data[3] == pytest.approx(2.5)
    assert bias.data[3] / (source.quantisation.scale[0] * weights.quantisation.scale[3]) <= 2**30 * 1.001
    with torch.no_grad():
        torch.testing.assert_close(fake(x), network(x), rtol=0.1, atol=0.1)


def test_gradients_pass_inside_the_grid_and_stop_outside() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    inside = x.clone().requires_grad_()
    fake(inside).sum().backward()
    assert inside.grad is not None and (inside.grad != 0).float().mean() > 0.9
    outside = (x * 0 + 1000.0).requires_grad_()
    fake(outside).sum().backward()
    assert outside.grad is not None and not outside.grad.any()


def test_every_weight_has_a_gradient_even_the_largest() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    y = torch.arange(len(x)) % 4
    F.cross_entropy(fake(x), y).backward()
    key = str(len(fake.graph.ops) - 2)  # the classifier, whose grid is set by its largest weight
    gradient = fake.weights[key].grad
    assert gradient is not None
    assert gradient.flatten()[fake.weights[key].abs().argmax()] != 0


def test_calibration_has_no_more_error_than_the_whole_range() -> None:
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) ** 3
    scale, zero_point = calibrated_grid(values, "none")

    def squared_error(scale: float, zero_point: int) -> float:
        steps = (values / scale).round().clamp(-128 - zero_point, 127 - zero_point)
        return float((steps * scale - values).double().square().sum())

    lowest, highest = float(values.min()), float(values.max())
    whole = (highest - lowest) / 255
    assert squared_error(scale, zero_point) < squared_error(whole, round(-128 - lowest / whole))


def test_a_tensor_that_is_always_zero_gets_a_grid_all_the_same() -> None:
    assert calibrated_grid(torch.zeros(10), "relu") == (1.0, -128)
    assert calibrated_grid(torch.full((10,), -3.0), "relu") == (1.0, -128)


def test_relu6_is_clipped_at_six() -> None:
    scale, zero_point = calibrated_grid(torch.linspace(-10, 100, 1000), "relu6")
    assert zero_point == -128
    assert 255 * scale <= 6.0001
