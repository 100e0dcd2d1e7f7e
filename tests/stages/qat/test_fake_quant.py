"""The fake-quant network: equal to the float one when it does not round, on the int8 grid when it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipeline.errors import StageError
from stages.graph.arithmetic.float_reference import run_float
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import ConvOptions
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.grids import calibrated_grid
from tests.stages.qat.float_graphs import GRAPHS, FloatBuilder
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


@pytest.mark.parametrize("name", GRAPHS)
def test_without_rounding_every_op_is_the_float_op(name: str) -> None:
    graph = GRAPHS[name](1)
    x = torch.randn(4, *(graph.tensors[0].shape[axis] for axis in (3, 1, 2)))
    expected = run_float(graph, x.permute(0, 2, 3, 1).numpy())[graph.ops[-1].inputs[0]]
    fake = FakeQuantNetwork(graph)
    with fake.without_rounding(), torch.no_grad():
        np.testing.assert_allclose(fake(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert fake.quantises


def test_gradients_of_the_rounded_network_are_close_to_those_of_the_float_network() -> None:
    _, fake, x = dscnn()
    fake.calibrate(x)
    y = torch.arange(len(x)) % 4
    gradients = []
    for quantises in (True, False):
        fake.quantises = quantises
        fake.zero_grad()
        F.cross_entropy(fake(x), y).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in fake.parameters() if p.grad is not None]))
    assert F.cosine_similarity(gradients[0], gradients[1], dim=0) > 0.95
    assert 0.8 < gradients[0].norm() / gradients[1].norm() < 1.25


def test_what_is_concatenated_shares_a_grid_wide_enough_for_all() -> None:
    graph = GRAPHS["branches"](0)
    fake = FakeQuantNetwork(graph)
    samples = torch.randn(50, 3, 10, 10, generator=torch.Generator().manual_seed(0))
    fake.calibrate(samples)
    values = run_float(graph, samples.permute(0, 2, 3, 1).numpy())
    quantised = fake.quantised_graph()
    for op in quantised.ops:
        if op.kind == "CONCATENATION":
            grids = {quantised.tensors[index].quantisation for index in (*op.inputs, *op.outputs)}
            assert len(grids) == 1
            (grid,) = grids
            assert grid is not None and grid.zero_point[0] > -128  # one part has no ReLU behind it
            joined = values[op.outputs[0]]
            low, high = ((end - grid.zero_point[0]) * grid.scale[0] for end in (-128, 127))
            assert 1.05 * joined.min() < low < 0.55 * joined.min() and 0.55 * joined.max() < high < 1.05 * joined.max()


def test_a_sigmoid_has_the_grid_that_the_runtime_prescribes() -> None:
    fake = FakeQuantNetwork(GRAPHS["squeeze_and_excite"](0))
    fake.calibrate(torch.randn(20, 3, 12, 12))
    quantised = fake.quantised_graph()
    found = [quantised.tensors[op.outputs[0]].quantisation for op in quantised.ops if op.kind == "LOGISTIC"]
    assert [(grid.scale, grid.zero_point) for grid in found if grid] == [((1 / 256,), (-128,))]


def test_a_concatenated_sigmoid_is_refused() -> None:
    b = FloatBuilder(0, 6, 6, 2)
    joined = b.concatenation(b.unary("LOGISTIC", b.conv(0, 3)), b.conv(0, 3))
    graph = b.graph(b.fully_connected(b.mean(joined), 4))
    with pytest.raises(StageError, match=r"LOGISTIC activation\d+: a sigmoid is concatenated, needed an op that may"):
        FakeQuantNetwork(graph)


def test_an_op_that_cannot_be_rounded_is_named() -> None:
    b = FloatBuilder(0, 6, 6, 2)
    graph = b.graph(b.fully_connected(b.unary("TANH", 0), 4))
    with pytest.raises(StageError, match=r"TANH activation1: no int8 rounding for it, needed ADD, "):
        FakeQuantNetwork(graph)


def test_calibration_looks_at_fewer_samples_of_a_large_network() -> None:
    b = FloatBuilder(0, 20, 20, 3)
    wide = b.conv(0, 64, 1, ConvOptions((2, 2)))  # 6400 values a sample
    fake = FakeQuantNetwork(b.graph(b.fully_connected(b.mean(wide), 2)))
    x = torch.zeros(40, 3, 20, 20)
    x[11:] = 1e6
    fake.calibrate(x, values_at_once=6400 * 11)
    assert float(fake.scales[0]) == 1.0  # nothing but zeros was seen
    fake.calibrate(x, values_at_once=6400 * 12)
    assert float(fake.scales[0]) > 1000


def test_a_relu6_of_its_own_leaves_the_grid_of_its_input_alone() -> None:
    b = FloatBuilder(0, 6, 6, 2)
    plain = b.conv(0, 4)
    clipped = b.unary("RELU6", plain)
    fake = FakeQuantNetwork(b.graph(b.fully_connected(b.mean(clipped), 3)))
    fake.calibrate(torch.randn(30, 2, 6, 6, generator=torch.Generator().manual_seed(0)))
    quantised = fake.quantised_graph()
    before, after = (quantised.tensors[index].quantisation for index in (plain, clipped))
    assert before == after and before is not None
    assert -60 < before.zero_point[0] < 60  # values of both signs fit


@pytest.mark.parametrize(("first", "zero_point"), [(0, -128), (-100, -28), (-255, 127)])
def test_values_on_a_grid_of_256_steps_get_that_grid(first: int, zero_point: int) -> None:
    assert calibrated_grid(0.5 * torch.arange(first, first + 256), "none") == (0.5, zero_point)


def test_a_percentile_leaves_out_the_ends_on_both_sides():
    values = torch.cat([torch.linspace(-1, 1, 10_001), torch.tensor([1000.0, -1000.0])])
    scale, zero_point = calibrated_grid(values, "none", 99.0)
    assert scale * 255 == pytest.approx(2 * 0.98, rel=0.01) and abs(zero_point) <= 1
    assert calibrated_grid(values, "none", 100.0)[0] * 255 == pytest.approx(2000, rel=0.01)


@pytest.mark.parametrize("activation", ["none", "relu", "relu6"])
def test_the_slope_of_a_learned_scale_is_that_of_each_value_by_itself(activation: str) -> None:
    b = FloatBuilder(0, 6, 6, 2)
    fake = FakeQuantNetwork(b.graph(b.conv(0, 4, options=ConvOptions(activation=activation))), learns_ranges=True)
    x = 4 * torch.randn(30, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    fake.calibrate(x)
    fake.scales[list(fake.grid_of)] *= 1.3 if activation == "relu6" else 0.7  # beyond 6, or ends before the values do
    weights = torch.randn(30, 4, 6, 6, generator=torch.Generator().manual_seed(1))
    fake.train()
    (fake(x) * weights).sum().backward()
    result = fake.graph.ops[0].outputs[0]
    grid = fake._grid(result)
    scale, lowest, highest = grid.scale[0], -128 - grid.zero_point[0], 127 - grid.zero_point[0]
    rounds = fake.eval()
    exact = _before_rounding(rounds, x) / scale
    most = {"none": highest, "relu": highest, "relu6": round(6 / scale)}[activation]
    expected, clipped = 0.0, 0
    for value, weight in zip(exact.flatten().tolist(), weights.flatten().tolist(), strict=True):
        if activation != "none" and value <= 0:
            continue
        if lowest < value < most:
            expected += weight * scale * (round(value) - value)
        elif most == highest or value <= lowest:  # at the end of the grid the value grows with the scale
            expected, clipped = expected + weight * scale * (highest if value > 0 else lowest), clipped + 1
    assert clipped > 5 or activation == "relu6"
    assert fake.stretch is not None and fake.stretch.grad is not None
    assert float(fake.stretch.grad[result]) == pytest.approx(expected, rel=1e-3)


def _before_rounding(fake: FakeQuantNetwork, x: torch.Tensor) -> torch.Tensor:
    """What the only layer computes from its rounded input with its rounded weights."""
    op = fake.graph.ops[0]
    source = fake._grid(fake.graph.inputs[0])
    steps = (x / source.scale[0]).round().clamp(-128 - source.zero_point[0], 127 - source.zero_point[0])
    scale = fake._weight_scale(op, fake.weights["0"].detach(), fake.biases["0"].detach())
    real = (fake.weights["0"].detach() / scale).round() * scale
    unit = scale.flatten() * source.scale[0]
    bias = (fake.biases["0"].detach() / unit).round() * unit
    return F.conv2d(F.pad(steps * source.scale[0], (1, 1, 1, 1)), real, bias)


def test_corrected_biases_keep_the_mean_of_every_channel_where_it_was() -> None:
    network, fake, x = dscnn()
    fake.calibrate(x)
    fake.eval()

    def shifts() -> list[float]:
        with fake.without_rounding():
            fake.load_state_dict({**fake.state_dict(), **{f"biases.{key}": bias for key, bias in exact.items()}})
            wanted = fake._channel_means(x)
        fake.load_state_dict({**fake.state_dict(), **{f"biases.{key}": bias for key, bias in corrected.items()}})
        found = fake._channel_means(x)
        return [float((found[key] - wanted[key]).abs().max()) for key in wanted]

    exact = {key: bias.detach().clone() for key, bias in fake.biases.items()}
    corrected = exact
    before = shifts()
    fake.correct_biases(x)
    corrected = {key: bias.detach().clone() for key, bias in fake.biases.items()}
    after = shifts()
    steps = [float(fake.scales[fake.grid_of[op.outputs[0]]]) for op in fake.graph.ops if len(op.inputs) == 3]
    assert max(before) > 0 and sum(after) < 0.2 * sum(before)
    assert all(shift < 0.1 * step for shift, step in zip(after, steps, strict=True))
