"""The numpy interpreter against TensorFlow Lite Micro, op by op, and its arithmetic against Python's own integers."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_reference import _exact_product, run_graph
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions, Quantisation
from stages.graph.judge.tflm import first_difference, run_tflm_keeping_all
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, Int8Builder, random_inputs, residual_network


def choose(builder: Int8Builder, *choices: object) -> object:
    return choices[int(builder.rng.integers(len(choices)))]


def conv_options(builder: Int8Builder, *, multiplier: int = 1) -> ConvOptions:
    dilated = bool(builder.rng.integers(2))
    return ConvOptions(
        stride=(1, 1) if dilated else choose(builder, (1, 1), (2, 1), (2, 2), (3, 2)),
        padding=choose(builder, "same", "valid"),
        dilation=choose(builder, (1, 2), (2, 2)) if dilated else (1, 1),
        activation=choose(builder, "none", "relu", "relu6"),
        depth_multiplier=multiplier,
    )


def single_op(kind: str, seed: int) -> Graph:
    """A graph of one random op of a kind."""
    builder = Int8Builder(seed)
    side = int(builder.rng.integers(5, 10))
    channels = int(builder.rng.integers(1, 9))
    x = builder.input(side, side + 1, channels)
    activation = ActivationOptions(choose(builder, "none", "relu", "relu6"))
    pool = PoolOptions(
        filter=choose(builder, (2, 2), (3, 2), (5, 5)),
        stride=choose(builder, (1, 1), (2, 2), (2, 3)),
        padding=choose(builder, "same", "valid"),
        activation=choose(builder, "none", "relu"),
    )
    per_channel = bool(builder.rng.integers(2))
    kernel = choose(builder, (1, 1), (3, 3), (2, 3))
    if kind == "CONV_2D":
        result = builder.conv(x, 7, kernel, conv_options(builder), per_channel=per_channel)
    elif kind == "DEPTHWISE_CONV_2D":
        multiplier = int(builder.rng.integers(1, 4))
        result = builder.depthwise(x, kernel, conv_options(builder, multiplier=multiplier), per_channel=per_channel)
    elif kind == "FULLY_CONNECTED":
        result = builder.fully_connected(builder.flatten(x), 11, activation, per_channel=per_channel)
    elif kind in ("ADD", "MUL"):
        result = builder.elementwise(
            kind, x, builder.pool("MAX_POOL_2D", x, PoolOptions((3, 3), (1, 1), "same")), activation
        )
        result = builder.elementwise(kind, result, x, ActivationOptions())
    elif kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        result = builder.pool(kind, x, pool)
    elif kind == "SOFTMAX":
        # Rows stay short: the runtime aborts when the exponentials of one row add up to 512.
        pooled = builder.pool("MAX_POOL_2D", x, PoolOptions((side, side + 1), (1, 1)))
        result = builder.softmax(builder.flatten(pooled), beta=float(builder.rng.choice([1.0, 0.5, 2.0])))
    elif kind == "PAD":
        result = builder.pad(x, (1, 2), (0, 3), (0, 0))
    else:
        assert kind == "RESHAPE"
        result = builder.flatten(x)
    return builder.graph(result)


KINDS = [
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "ADD",
    "MUL",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "SOFTMAX",
    "PAD",
    "RESHAPE",
]


def difference_from_tflm(graph: Graph, inputs: np.ndarray) -> str | None:
    theirs = run_tflm_keeping_all(write_tflite(graph, "test"), graph, inputs)
    return first_difference(graph, run_graph(graph, inputs), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_op_has_the_bits_of_tflm(kind: str) -> None:
    for seed in range(25):
        graph = single_op(kind, seed)
        assert difference_from_tflm(graph, random_inputs(graph, 4, seed)) is None, f"seed {seed}"


@pytest.mark.parametrize("seed", range(8))
def test_a_residual_network_has_the_bits_of_tflm_in_every_intermediate(seed: int) -> None:
    graph = residual_network(seed)
    assert difference_from_tflm(graph, random_inputs(graph, 20, seed)) is None


@pytest.mark.parametrize("scale", [1e-4, 0.01, 0.1, 0.6, 3.0, 40.0])
def test_softmax_of_any_input_scale_has_the_bits_of_tflm(scale: float) -> None:
    builder = Int8Builder(5)
    logits = builder.flatten(builder.input(1, 1, 12))
    for index in (builder.inputs[0], logits):
        builder.tensors[index] = replace(builder.tensors[index], quantisation=Quantisation((scale,), (3,)))
    graph = builder.graph(builder.softmax(logits))
    assert difference_from_tflm(graph, random_inputs(graph, 200)) is None


def test_sums_longer_than_float32_is_exact_for_have_the_bits_of_tflm() -> None:
    builder = Int8Builder(2)
    x = builder.input(5, 5, 60)
    graph = builder.graph(builder.conv(x, 6, (5, 5), ConvOptions(padding="valid")))
    weights = graph.tensors[graph.ops[0].inputs[1]].data
    assert weights is not None and weights[0].size * 127 * 255 > 2**24
    one_sided = random_inputs(graph, 8)
    one_sided[:8] = np.where(weights[0] >= 0, one_sided[:8] | 1, -127)  # products of one sign add up
    assert difference_from_tflm(graph, one_sided) is None


def test_products_are_summed_to_the_last_bit_at_their_largest() -> None:
    rows = np.full((1, 1501), 255, np.float32)
    weights = np.full((2, 1501), 127, np.int8)
    weights[1, ::2] = -128
    assert _exact_product(rows, weights).tolist() == [[255 * 127 * 1501, 255 * (750 * 127 - 751 * 128)]]


def test_fully_connected_multiplies_its_scales_in_double_precision_like_tflm() -> None:
    """Biases are put where the two ways of multiplying the scales round to different values."""
    builder = Int8Builder(0)
    x = builder.flatten(builder.input(1, 1, 4))
    graph = builder.graph(builder.fully_connected(x, 512, ActivationOptions()))
    op = graph.ops[-1]
    source, weights, result = (graph.tensors[index] for index in (op.inputs[0], op.inputs[1], op.outputs[0]))
    assert source.quantisation and weights.quantisation and result.quantisation
    scales = [grid.scale[0] for grid in (source.quantisation, weights.quantisation)]
    scale_out = float(np.float32(scales[0] * scales[1] * 2**30 / 120))
    edges = (np.arange(-110, 110) + 0.5) * scale_out / (scales[0] * scales[1])  # sums between two outputs
    sums = (np.round(edges).astype(np.int64)[:, np.newaxis] + np.arange(-60, 61)).ravel()
    single = fp.quantised_multiplier(float(np.float32(scales[0]) * np.float32(scales[1])) / scale_out)
    double = fp.quantised_multiplier(scales[0] * scales[1] / scale_out)
    one, two = (fp.rescale(sums, factor.mantissa, factor.shift) for factor in (single, double))
    telling = sums[one != two]
    assert len(telling) > 0
    tensors = list(graph.tensors)
    tensors[op.inputs[1]] = replace(weights, data=np.zeros_like(weights.data))
    bias = np.resize(telling, 512).astype(np.int32)
    tensors[op.inputs[2]] = replace(graph.tensors[op.inputs[2]], data=bias)
    tensors[op.outputs[0]] = replace(result, quantisation=Quantisation((scale_out,), (0,)))
    assert difference_from_tflm(replace(graph, tensors=tuple(tensors)), random_inputs(graph, 1)) is None


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
@pytest.mark.parametrize("path", THIRD_PARTY_MODELS, ids=lambda path: path.stem)
def test_third_party_models_have_the_bits_of_tflm_in_every_intermediate(path: Path) -> None:
    graph = read_tflite(path)
    assert difference_from_tflm(graph, random_inputs(graph, 10)) is None


def test_the_first_axis_is_the_sample_and_batches_do_not_mix() -> None:
    graph = residual_network(1)
    inputs = random_inputs(graph, 40)
    together = run_graph(graph, inputs, keep_all=False)
    assert set(together) == set(graph.outputs)
    alone = np.concatenate([run_graph(graph, x[np.newaxis])[graph.outputs[0]] for x in inputs])
    np.testing.assert_array_equal(together[graph.outputs[0]], alone)


def test_wrong_inputs_and_unknown_ops_are_refused() -> None:
    graph = residual_network(0)
    with pytest.raises(StageError, match=r"inputs are float32 of shape \(2, 9, 7, 3\), needed int8"):
        run_graph(graph, np.zeros((2, 9, 7, 3), np.float32))
    unknown = replace(graph, ops=(Op("SQUEEZE", "squeezed", (0,), graph.ops[0].outputs),))
    with pytest.raises(
        StageError, match="squeezed: SQUEEZE of int8 has no reference kernel, needed int8 and one of ABS, ADD"
    ):
        run_graph(unknown, random_inputs(graph, 1))


def exact_high_multiply(first: int, second: int) -> int:
    product = Fraction(first * second, 2**31)
    rounded = int(abs(product) + Fraction(1, 2)) * (1 if product >= 0 else -1)
    # gemmlowp's nudge for negative products is one unit short of a half: exact halves go towards zero there.
    if product < 0 and (abs(product) + Fraction(1, 2)).denominator == 1:
        rounded += 1
    return min(rounded, 2**31 - 1)


def test_high_multiply_equals_exact_fractions() -> None:
    rng = np.random.default_rng(0)
    first = np.concatenate([rng.integers(-(2**31), 2**31, 500), [-(2**31), 2**31 - 1, 0, 1, -1, 2**30, -(2**30)]])
    second = np.concatenate([rng.integers(-(2**31), 2**31, 500), [-(2**31), 2**31 - 1, 5, 2**30, 2**30, 1, 1]])
    found = fp.high_multiply(first, second)
    assert found.tolist() == [exact_high_multiply(int(a), int(b)) for a, b in zip(first, second, strict=True)]


def test_rounding_shift_goes_to_the_nearest_and_halves_away_from_zero() -> None:
    values = np.array([5, 6, 7, -5, -6, -7, 0, 2**31 - 1, -(2**31)])
    assert fp.rounding_shift_right(values, 2).tolist() == [1, 2, 2, -1, -2, -2, 0, 2**29, -(2**29)]


def shift_right_int16(value: int, exponent: int) -> int:
    """gemmlowp's RoundingDivideByPOT on an int16, whose mask and threshold wrap."""
    mask = ((1 << exponent) - 1) & 0xFFFF
    mask -= (mask & 0x8000) << 1
    threshold = (mask >> 1) + (value < 0)
    return (value >> exponent) + ((value & mask) > threshold)


@pytest.mark.parametrize("exponent", [0, 1, 2, 7, 15, 16, 20])
def test_a_shift_of_sixteen_bits_or_more_wraps_as_in_c(exponent: int) -> None:
    values = [-(2**15), -12345, -2, -1, 0, 1, 2, 3, 12345, 2**15 - 1]
    found = fp.rounding_shift_right_int16(np.array(values), exponent)
    assert found.tolist() == [shift_right_int16(value, exponent) for value in values]


def test_a_factor_of_nothing_or_next_to_nothing_is_zero() -> None:
    for factor in (0.0, 2.0**-33):
        assert fp.quantised_multiplier(factor) == fp.Multiplier(0, 0)
    assert fp.quantised_multiplier(2.0**-32) == fp.Multiplier(2**30, -31)
    assert fp.quantised_multiplier(1 - 2.0**-40) == fp.Multiplier(2**30, 1)


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.99999999999, 3.7, 1e-3, 123456.0, 2.0**-20])
def test_a_multiplier_is_the_nearest_of_its_form(factor: float) -> None:
    found = fp.quantised_multiplier(factor)
    assert 2**30 <= found.mantissa < 2**31
    assert abs(found.mantissa * 2.0 ** (found.shift - 31) - factor) <= factor * 2.0**-31


def test_the_constants_are_the_nearest_of_31_bits() -> None:
    assert list(fp._EXP_FACTORS) == [round(math.exp(-(2.0**k)) * 2**31) for k in range(-2, 5)]
    assert (round(math.exp(-1 / 8) * 2**31), round(2**31 / 3)) == (fp._EXP_MINUS_EIGHTH, fp._ONE_THIRD)


def test_exp_and_reciprocal_are_close_to_the_real_functions() -> None:
    x = -np.arange(0, 32 << 26, 7_654_321)
    np.testing.assert_allclose(fp.exp_of_negative(x, 5) / 2**31, np.exp(x / 2**26), atol=1e-7)
    np.testing.assert_allclose(fp.exp_of_negative(x, 4) / 2**31, np.exp(x / 2**27), atol=1e-7)
    np.testing.assert_allclose(fp.logistic(x, 4) / 2**31, 1 / (1 + np.exp(-x / 2**27)), atol=1e-7)
    sums = np.array([1 << 19, (1 << 19) + 12345, 5 << 19, 100 << 19])
    inverse, bits = fp.reciprocal(sums, 12)
    np.testing.assert_allclose(inverse / 2.0**31 / 2.0**bits, 2.0**19 / sums, rtol=1e-6)
