"""Operators of int16 activations (16x8) as calls of portable kernels, boards/firmware/kernels/wide."""

from __future__ import annotations

import math
from collections.abc import Callable

from pipeline.errors import StageError
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall, reshape_call, struct_call
from stages.firmware.kernels.elementwise import broadcast_members, elementwise_call
from stages.firmware.kernels.movement import move_call
from stages.firmware.kernels.parameters import (
    PARAMETER_BYTES,
    multiplier_for,
    output_range,
    scaling_members,
    stored_bias,
    weighted_operands,
    weights_title,
    window_members,
)
from stages.firmware.kernels.shape import concatenation_call, mean_call, pad_call
from stages.firmware.kernels.state import assign_call, read_call
from stages.graph.arithmetic import int16_reference as reference
from stages.graph.arithmetic.int8_lstm import sigmoid_table
from stages.graph.arithmetic.int8_pointwise import activation_range, scale_of, zero_point_of
from stages.graph.arithmetic.int8_reference import rescaling_factors
from stages.graph.arithmetic.movement import MOVES
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions

_LAYERS, _ELEMENTWISE = "kernels/wide/layers.h", "kernels/wide/elementwise.h"
_CHANNEL_BYTES = 16  # sizeof(struct wide_channel)
_MOST_OF_A_WINDOW = 2**16 - 1


def _layer_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED."""
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None and isinstance(op.options, ConvOptions | ActivationOptions)
    is_narrow = reference.sums_are_narrow(graph, op)
    outputs = weights.shape[3 if op.kind == "DEPTHWISE_CONV_2D" else 0]
    lowest, highest = activation_range(result, op.options.activation)
    params = {
        "weights": f"{name}_weights",
        "channels": f"{name}_channels",
        "window": _dense_window(op, source.elements, weights.shape[1])
        if op.kind == "FULLY_CONNECTED"
        else window_members(graph, op),
        "outputs": outputs,
        "depth_multiplier": outputs // source.shape[-1] if op.kind == "DEPTHWISE_CONV_2D" else 0,
        **{"is_narrow": int(is_narrow), "lowest": lowest, "highest": highest},
    }
    factors = list(rescaling_factors(source, weights, result))
    pairs = [_scaling(op, factor, is_narrow) for factor in factors * (outputs if len(factors) == 1 else 1)]
    rows = [
        f"{{INT64_C({bias}), {multiplier}, {shift}}}"
        for bias, (multiplier, shift) in zip(stored_bias(graph, op, outputs).tolist(), pairs, strict=True)
    ]
    channels = f"static const struct wide_channel {name}_channels[{outputs}] = {{\n    {', '.join(rows)},\n}};\n\n"
    array = c_array("int8_t", f"{name}_weights", weights.data, weights_title(weights))
    return KernelCall(
        kernel="wide_layer",
        call=f"wide_layer(&{name}, {{0}}, {{1}});",
        constants=array + channels + c_struct("wide_layer", name, params),
        constant_bytes=weights.nbytes + _CHANNEL_BYTES * outputs + PARAMETER_BYTES,
        header=_LAYERS,
        activations=(op.inputs[0], op.outputs[0]),
    )


def _scaling(op: Op, factor: float, is_narrow: bool) -> tuple[int, int]:
    if not is_narrow:
        return reference.short_multiplier(factor)
    multiplier = multiplier_for(factor, op)
    return multiplier.mantissa, multiplier.shift


def _dense_window(op: Op, elements: int, depth: int) -> dict[str, int]:
    rows = elements // depth
    if max(rows, depth) > _MOST_OF_A_WINDOW:
        raise StageError(f"firmware: {op.kind} ({op.name}) of {rows} x {depth}, needed {_MOST_OF_A_WINDOW} at most")
    ones = dict.fromkeys(
        ("input_width", "output_width", "height", "width", "stride_y", "stride_x", "dilation_y", "dilation_x"), 1
    )
    return {**ones, "input_height": rows, "output_height": rows, "channels": depth}


def _pool_call(graph: Graph, op: Op, name: str) -> KernelCall:
    assert isinstance(op.options, PoolOptions)
    lowest, highest = activation_range(graph.tensors[op.outputs[0]], op.options.activation)
    params = {"window": window_members(graph, op), "lowest": lowest, "highest": highest}
    kernel = "wide_average_pool" if op.kind == "AVERAGE_POOL_2D" else "wide_max_pool"
    return struct_call(op, name, kernel, _LAYERS, "pool_2d", params)


def _mean_call(graph: Graph, op: Op, name: str) -> KernelCall:
    call = mean_call(graph, op, name)
    text = call.call.replace("mean(", "wide_mean(", 1)
    return KernelCall(
        kernel="wide_mean",
        call=text,
        constants=call.constants,
        constant_bytes=call.constant_bytes,
        header=_LAYERS,
        activations=call.activations,
    )


def _sum_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """ADD and SUB."""
    assert isinstance(op.options, ActivationOptions)
    result = graph.tensors[op.outputs[0]]
    scales = [scale_of(graph.tensors[index]) for index in op.inputs]
    lifts = [multiplier_for(scale / (2 * max(scales)), op) for scale in scales]
    factor = 2 * max(scales) / ((1 << reference.ADD_HEADROOM_BITS) * scale_of(result))
    params = {
        "operands": [{"multiplier": lift.mantissa, "right": -lift.shift} for lift in lifts],
        **scaling_members(multiplier_for(factor, op)),
        "range": output_range(result, op.options.activation),
        "broadcast": broadcast_members(graph, op),
    }
    return _pair_call(graph, op, name, f"wide_{op.kind.lower()}", c_struct("add", name, params))


def _mul_call(graph: Graph, op: Op, name: str) -> KernelCall:
    assert isinstance(op.options, ActivationOptions)
    first, second, result = (graph.tensors[index] for index in (*op.inputs, op.outputs[0]))
    params = {
        **scaling_members(multiplier_for(scale_of(first) * scale_of(second) / scale_of(result), op)),
        "range": output_range(result, op.options.activation),
        "broadcast": broadcast_members(graph, op),
    }
    return _pair_call(graph, op, name, "wide_mul", c_struct("mul", name, params))


def _extreme_call(graph: Graph, op: Op, name: str) -> KernelCall:
    constants = c_struct("extreme", name, {"broadcast": broadcast_members(graph, op)})
    return _pair_call(graph, op, name, f"wide_{op.kind.lower()}", constants)


def _pair_call(graph: Graph, op: Op, name: str, kernel: str, constants: str) -> KernelCall:
    return elementwise_call(graph, op, name, kernel=kernel, header=_ELEMENTWISE, constants=constants)


def _slopes_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """RELU, RELU6, LEAKY_RELU, QUANTIZE."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    above, below = (1.0, 1.0) if op.kind == "RELU6" else reference.slopes(graph, op)
    if below < 0:
        raise StageError(f"firmware: {op.kind} ({op.name}) has a slope of {below:g} in int16, needed 0 or more")
    limits = output_range(result, "none")
    if op.kind == "RELU6":  # on the grid of the input
        limits["lowest"], limits["highest"] = activation_range(source, "relu6")
    params = {
        "above": scaling_members(multiplier_for(above, op)),
        "below": scaling_members(multiplier_for(below, op)),
        "input_zero_point": zero_point_of(source),
        "range": limits,
        "elements": result.elements,
        "is_from_int8": int(source.dtype == "int8"),
        "is_to_int8": int(result.dtype == "int8"),
    }
    return struct_call(op, name, "wide_slopes", _ELEMENTWISE, "wide_slopes", params)


def _curve_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """LOGISTIC and TANH."""
    multiplier, shift = reference.curve_scaling(graph.tensors[op.inputs[0]])
    params = {
        "sigmoid": f"{name}_sigmoid",
        **{"multiplier": multiplier, "shift": shift, "is_tanh": int(op.kind == "TANH")},
        "elements": graph.tensors[op.outputs[0]].elements,
    }
    table = c_array("uint16_t", f"{name}_sigmoid", sigmoid_table(), "sigmoid")
    return _with_tables(struct_call(op, name, "wide_curve", _ELEMENTWISE, "wide_curve", params), table, 512)


def _softmax_call(graph: Graph, op: Op, name: str) -> KernelCall:
    shape = graph.tensors[op.inputs[0]].shape
    powers, reciprocals = reference.softmax_tables()
    tables = c_array("int16_t", f"{name}_powers", powers, "exp(x) from -10 to 0")
    tables += c_array("int16_t", f"{name}_reciprocals", reciprocals, "1 / (1 + x) from 0 to 1")
    params = {
        "powers": f"{name}_powers",
        "reciprocals": f"{name}_reciprocals",
        **scaling_members(reference.softmax_multiplier(graph, op)),
        **{"rows": math.prod(shape[:-1]), "depth": shape[-1]},
    }
    return _with_tables(struct_call(op, name, "wide_softmax", _ELEMENTWISE, "wide_softmax", params), tables, 2052)


def _with_tables(call: KernelCall, tables: str, size_bytes: int) -> KernelCall:
    return KernelCall(
        kernel=call.kernel,
        call=call.call,
        constants=tables + call.constants,
        constant_bytes=call.constant_bytes + size_bytes,
        header=call.header,
        activations=call.activations,
    )


WIDE_COMPILERS: dict[str, Callable[[Graph, Op, str], KernelCall]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _layer_call),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _pool_call),
    "MEAN": _mean_call,
    **dict.fromkeys(("ADD", "SUB"), _sum_call),
    "MUL": _mul_call,
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), _extreme_call),
    **dict.fromkeys(("RELU", "RELU6", "LEAKY_RELU", "QUANTIZE"), _slopes_call),
    **dict.fromkeys(("LOGISTIC", "TANH"), _curve_call),
    "SOFTMAX": _softmax_call,
    "CONCATENATION": concatenation_call,
    "RESHAPE": reshape_call,
    "PAD": pad_call,
    **dict.fromkeys(MOVES, move_call),
    "READ_VARIABLE": read_call,
    "ASSIGN_VARIABLE": assign_call,
}
