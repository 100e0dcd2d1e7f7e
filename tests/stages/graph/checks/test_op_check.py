"""The soundness check: one sentence per mistake, and what just fits still passes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    Graph,
    NoOptions,
    Op,
    Options,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)
from tests.stages.graph.int8_graphs import residual_network


def with_tensor(graph: Graph, index: int, **changes: object) -> Graph:
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], **changes)
    return replace(graph, tensors=tuple(tensors))


def mistakes() -> list[tuple[str, Graph]]:
    graph = residual_network(0)
    conv, add, dense = graph.ops[0], graph.ops[3], graph.ops[6]
    grid = Quantisation((0.1, 0.2), (0, 0))
    return [
        ("weights of shape .* do not fit", with_tensor(graph, conv.inputs[1], shape=(8, 3, 3, 4))),
        ("bias of shape .*, needed 8 constants", with_tensor(graph, conv.inputs[2], shape=(9,))),
        ("the weights are computed, needed a constant", replace_op_input(graph, 0, 1, 0)),
        ("2 weight scales, needed 1 or 8 on axis 0", with_tensor(graph, conv.inputs[1], quantisation=grid)),
        ("is int8, needed int8 or int16 with one scale", with_tensor(graph, add.outputs[0], quantisation=None)),
        ("output of type int16, needed int8", with_tensor(graph, add.outputs[0], dtype="int16")),
        ("do not fit together", replace_op_input(graph, 3, 1, 0)),
        ("do not fit an input of shape", with_tensor(graph, dense.inputs[1], shape=(5, 9))),
        ("is computed twice", replace(graph, ops=(*graph.ops, graph.ops[-1]))),
        ("0 operators", replace(graph, ops=())),
        ("is never computed", replace(graph, ops=graph.ops[:-1])),
        ("input or output 99", replace(graph, outputs=(99,))),
        ("is a constant or a state, needed an activation", with_tensor(graph, 0, data=np.zeros((1, 9, 7, 3), np.int8))),
        ("input or output -1", replace(graph, inputs=(-1,))),
        ("needed a tensor 0 to 17", replace(graph, outputs=(len(graph.tensors),))),
        ("2 inputs, some of them the same tensor", replace(graph, inputs=(0, 0))),
        ("0 inputs", replace(graph, inputs=())),
        ("0 outputs", replace(graph, outputs=())),
        ("is used before it is computed", graph.in_order((1, 0, 2, 3, 4, 5, 6, 7))),
        ("1 inputs and 1 outputs, needed 2 to 3 and 1", with_op(graph, 0, inputs=conv.inputs[:1])),
        ("4 inputs and 1 outputs, needed 2 to 3 and 1", with_op(graph, 0, inputs=(*conv.inputs, 1))),
        ("2 inputs and 1 outputs, needed 2 to 3 and 1", with_op(graph, 0, inputs=(0, -1))),
        ("needed 2 to 2 and 1", with_op(graph, 3, outputs=(*add.outputs, len(graph.tensors) - 1))),
        ("the first operand is a constant", with_op(graph, 0, inputs=(conv.inputs[1], *conv.inputs[1:]))),
        ("weights are int8, needed int8 with scales and zero points of 0", weights_on(Quantisation((0.1,), (1,)))),
        ("weights are int8, needed int8 with scales", with_tensor(graph, conv.inputs[1], quantisation=None)),
        ("weights are int16, needed int8 with scales", with_tensor(graph, conv.inputs[1], dtype="int16")),
        ("8 weight scales, needed 1 or 8 on axis 0", weights_on(Quantisation((0.1,) * 8, (0,) * 8, axis=3))),
        ("bias is int16, needed int32", with_tensor(graph, conv.inputs[2], dtype="int16")),
        (
            "needed a scale above 0 and a zero point within int8",
            with_tensor(graph, 0, quantisation=Quantisation((0.1,), (128,))),
        ),
        (
            "needed a scale above 0 and a zero point within int8",
            with_tensor(graph, 0, quantisation=Quantisation((0.1,), (-129,))),
        ),
        ("needed int8 or int16 with one scale and zero point", with_tensor(graph, 0, quantisation=grid)),
        ("needed 4 axes and steps of 1 or more", with_options(graph, 0, stride=(0, 1))),
        ("needed 4 axes and steps of 1 or more", with_options(graph, 0, dilation=(1, 0))),
        ("needed 4 axes and steps of 1 or more", with_options(graph, 4, filter=(0, 4))),
        ("output of shape .*, needed ", with_options(graph, 4, filter=(4, 4), stride=(1, 1))),
        ("output of shape .*, needed ", with_tensor(graph, graph.ops[5].outputs[0], shape=(1, 9))),
        ("weights of shape .* do not fit an input", with_options(graph, 1, depth_multiplier=2)),
        ("weights of shape .* do not fit an input", with_tensor(graph, graph.ops[1].inputs[1], shape=(2, 3, 3, 8))),
    ]


def with_op(graph: Graph, number: int, **changes: object) -> Graph:
    ops = list(graph.ops)
    ops[number] = replace(ops[number], **changes)
    return replace(graph, ops=tuple(ops))


def with_options(graph: Graph, number: int, **changes: object) -> Graph:
    return with_op(graph, number, options=replace(graph.ops[number].options, **changes))


def weights_on(grid: Quantisation) -> Graph:
    graph = residual_network(0)
    return with_tensor(graph, graph.ops[0].inputs[1], quantisation=grid)


def replace_op_input(graph: Graph, number: int, position: int, tensor: int) -> Graph:
    ops = list(graph.ops)
    inputs = list(ops[number].inputs)
    inputs[position] = tensor
    ops[number] = replace(ops[number], inputs=tuple(inputs))
    return replace(graph, ops=tuple(ops))


@pytest.mark.parametrize(("sentence", "graph"), mistakes(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_mistake_has_its_sentence(sentence: str, graph: Graph) -> None:
    with pytest.raises(StageError, match=sentence):
        check_graph(graph)


def fits(graph: Graph) -> bool:
    try:
        check_graph(graph)
    except StageError:
        return False
    return True


def test_one_scale_or_one_per_channel_and_any_int8_zero_point_pass() -> None:
    assert fits(weights_on(Quantisation((0.1,), (0,))))
    for zero_point in (-128, 127):
        assert fits(with_tensor(residual_network(0), 0, quantisation=Quantisation((0.1,), (zero_point,))))


def one_op(kind: str, *scales: float, options: Options = NoOptions(), result: float = 1.0) -> Graph:  # noqa: B008
    """An elementwise op with these input scales and this output scale."""
    tensors = [Tensor(f"x{n}", (1, 4), "int8", Quantisation((scale,), (0,))) for n, scale in enumerate(scales)]
    grid = Quantisation((1 / 256,), (-128,)) if kind in ("LOGISTIC", "SOFTMAX") else Quantisation((result,), (0,))
    inputs = tuple(range(len(scales)))
    op = Op(kind, "y", inputs, (len(scales),), options)
    rows = len(scales) if kind == "CONCATENATION" else 1
    return Graph((*tensors, Tensor("y", (rows, 4), "int8", grid)), (op,), inputs, op.outputs)


@pytest.mark.parametrize(
    ("within", "beyond", "sentence"),
    [
        (one_op("LOGISTIC", 2.0**-27), one_op("LOGISTIC", 2.0**-28), "input scale .*, needed at least"),
        (
            one_op("SOFTMAX", 2.0**-24, options=SoftmaxOptions(0.5)),
            one_op("SOFTMAX", 2.0**-25, options=SoftmaxOptions(0.5)),
            "beta times input scale is .*, needed above",
        ),
        (
            one_op("SOFTMAX", 1.0, options=SoftmaxOptions(2.0)),
            one_op("SOFTMAX", 1.0, options=SoftmaxOptions(math.inf)),
            "beta times input scale is inf, needed above",
        ),
        (one_op("HARD_SWISH", 127.0), one_op("HARD_SWISH", 128.0), "needed a ratio below 128"),
        (one_op("RELU", 2.0**29), one_op("RELU", 2.0**30), "call for a factor of .*, needed below"),
        (one_op("QUANTIZE", 2.0**30, result=2.0), one_op("QUANTIZE", 2.0**29, result=0.5), "call for a factor of"),
        (
            one_op("ADD", 1.0, 2.0**29, options=ActivationOptions()),
            one_op("ADD", 1.0, 2.0**30, options=ActivationOptions()),
            "call for a factor of",
        ),
        (
            one_op("MUL", 2.0**15, 2.0**14, options=ActivationOptions()),
            one_op("MUL", 2.0**15, 2.0**15, options=ActivationOptions()),
            "call for a factor of",
        ),
        (
            one_op("CONCATENATION", *[1.0] * 10, options=ConcatOptions(0)),
            one_op("CONCATENATION", *[1.0] * 11, options=ConcatOptions(0)),
            "11 inputs and 1 outputs, needed 1 to 10 and 1",
        ),
        (
            one_op("CONCATENATION", 1.0, options=ConcatOptions(-2)),
            one_op("CONCATENATION", 1.0, options=ConcatOptions(-3)),
            "axis -3, activation none, needed an axis of 2",
        ),
        (
            one_op("CONCATENATION", 1.0, options=ConcatOptions(1)),
            one_op("CONCATENATION", 1.0, options=ConcatOptions(1, "relu")),
            "axis 1, activation relu, needed an axis of 2 and no activation",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_just_fits_passes_and_what_just_does_not_is_refused(within: Graph, beyond: Graph, sentence: str) -> None:
    check_graph(within)
    with pytest.raises(StageError, match=sentence):
        check_graph(beyond)


def test_the_weights_scales_count_for_the_factor_too() -> None:
    for scale, is_fine in ((2.0**29, True), (2.0**30, False)):
        graph = weights_on(Quantisation((scale,), (0,)))
        for index in (0, graph.ops[0].outputs[0]):
            graph = with_tensor(graph, index, quantisation=Quantisation((1.0,), (0,)))
        assert fits(graph) == is_fine


@pytest.mark.parametrize(
    ("kind", "source", "result", "is_fine"),
    [
        *[("QUANTIZE", "float32", "int8", True), ("QUANTIZE", "int8", "int8", True)],
        *[("QUANTIZE", "int32", "int8", False), ("QUANTIZE", "float32", "float32", False)],
        *[("DEQUANTIZE", "int8", "float32", True), ("DEQUANTIZE", "int8", "int8", False)],
        *[("DEQUANTIZE", "float32", "float32", False), ("RELU", "float32", "int8", False)],
    ],
)
def test_only_quantize_and_dequantize_change_the_type(kind: str, source: str, result: str, is_fine: bool) -> None:
    graph = with_tensor(with_tensor(one_op(kind, 1.0), 0, dtype=source), 1, dtype=result)
    assert fits(graph) == is_fine


def constant_operand(kind: str, values: object, shape: tuple[int, ...], dtype: type = np.int32) -> Graph:
    """PAD or MEAN of a (1, 3, 4) input by these values."""
    data = np.array(values, dtype)
    grid = Quantisation((1.0,), (0,))
    tensors = (
        *(Tensor("x", (1, 3, 4), "int8", grid), Tensor("values", data.shape, "int32", data=data)),
        Tensor("y", shape, "int8", grid),
    )
    return Graph(tensors, (Op(kind, "y", (0, 1), (2,)),), (0,), (2,))


@pytest.mark.parametrize(
    ("graph", "is_fine"),
    [
        (constant_operand("PAD", [[0, 0], [0, 2], [1, 0]], (1, 5, 5)), True),
        (constant_operand("PAD", [[0, 0], [-1, 2], [1, 0]], (1, 4, 5)), False),
        (constant_operand("PAD", [[0, 0], [0, 2]], (1, 5, 4)), False),
        (constant_operand("PAD", [[0, 0], [0, 2], [1, 0]], (1, 5, 5), np.int64), False),
        (constant_operand("MEAN", [-3], (3, 4)), True),
        (constant_operand("MEAN", [-4], (3, 4)), False),
        (constant_operand("MEAN", [2], (1, 3)), True),
        (constant_operand("MEAN", [2], (1, 3, 1)), True),
        (constant_operand("MEAN", [3], (1, 3)), False),
        (constant_operand("MEAN", [1, 2], (1, 1, 1)), True),
        (constant_operand("MEAN", [0, 1, 2, 0], (1, 1, 1)), False),
    ],
)
def test_paddings_and_axes_are_those_of_the_input(graph: Graph, is_fine: bool) -> None:
    assert fits(graph) == is_fine


def test_a_sound_graph_passes() -> None:
    graph = residual_network(0)
    check_graph(graph)
    assert len(graph.ops) == 8
