"""Layers with weights, pooling and SOFTMAX as calls of portable kernels: constants, parameters, scratch.

A 1x1 convolution with stride 1 and a FULLY_CONNECTED layer are products of matrices; a RESHAPE is nothing at all. See
portable.py for which operator takes which of these functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pipeline.errors import StageError
from stages.firmware.kernels.c_text import c_struct
from stages.firmware.kernels.parameters import (
    PARAMETER_BYTES,
    matrix_members,
    output_range,
    stored_bytes,
    weighted_operands,
    weights_and_channels,
    window_members,
)
from stages.graph.arithmetic.fixed_point import quantised_multiplier
from stages.graph.arithmetic.int8_pointwise import activation_range, scale_of, zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions, SoftmaxOptions

_SOFTMAX_INTEGER_BITS = 5


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """One operator in C. In `call`, {0}, {1}, ... stand for the pointers to its activations, the output last."""

    kernel: str  # the C function, 'alias' where nothing is left to do
    call: str = ""
    constants: str = ""  # definitions of weights and parameters
    constant_bytes: int = 0
    header: str = ""
    scratch: str = ""  # a member of the scratch union
    scratch_bytes: int = 0  # on the device
    activations: tuple[int, ...] = field(default=())
    assembly: tuple[tuple[str, str], ...] = ()  # functions that it needs, by name
    function: str = ""  # a definition in C that it needs, behind everything else
    parts: tuple[KernelCall, ...] = ()  # the calls of a fused chain

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(call.header for call in (self, *self.parts) if call.header)


def struct_call(op: Op, name: str, kernel: str, header: str, struct: str, params: Mapping[str, object]) -> KernelCall:
    """kernel(&parameters, input, output)."""
    return KernelCall(
        kernel=kernel,
        call=f"{kernel}(&{name}, {{0}}, {{1}});",
        constants=c_struct(struct, name, params),
        constant_bytes=PARAMETER_BYTES,
        header=header,
        activations=(op.inputs[0], op.outputs[0]),
    )


def convolution_call(graph: Graph, op: Op, name: str) -> KernelCall:
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, _ = weighted_operands(graph, op)
    outputs, height, width, channels = weights.shape
    if (height, width) == (1, 1) and options.stride == (1, 1):
        return product_call(graph, op, name)
    depth = height * width * channels
    params = {
        "matrix": matrix_members(graph, op, name, depth, outputs),
        "window": window_members(graph, op),
        "input_zero_point": zero_point_of(source),
    }
    return KernelCall(
        kernel="conv_2d",
        call=f"conv_2d(&{name}, {{0}}, scratch.{name}, {{1}});",
        constants=weights_and_channels(graph, op, name, axis=0) + c_struct("conv_2d", name, params),
        constant_bytes=stored_bytes(weights, outputs),
        header="kernels/conv_2d.h",
        scratch=f"int8_t {name}[{2 * depth}];",
        scratch_bytes=2 * depth,
        activations=(op.inputs[0], op.outputs[0]),
    )


def product_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source, weights, _ = weighted_operands(graph, op)
    outputs, depth = weights.shape[0], weights.shape[-1]
    constants = weights_and_channels(graph, op, name, axis=0)
    return KernelCall(
        kernel="matrix_multiply",
        call=f"matrix_multiply(&{name}, {{0}}, {source.elements // depth}, {{1}});",
        constants=constants + c_struct("matrix", name, matrix_members(graph, op, name, depth, outputs)),
        constant_bytes=stored_bytes(weights, outputs),
        header="kernels/matrix.h",
        activations=(op.inputs[0], op.outputs[0]),
    )


def depthwise_call(graph: Graph, op: Op, name: str) -> KernelCall:
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    _, height, width, outputs = weights.shape
    channels, taps = source.shape[3], height * width
    params = {
        "weights": f"{name}_weights",
        "channels": f"{name}_channels",
        "range": output_range(result, options.activation),
        "window": window_members(graph, op),
        "depth_multiplier": outputs // channels,
        "input_zero_point": zero_point_of(source),
    }
    return KernelCall(
        kernel="depthwise_conv_2d",
        call=f"depthwise_conv_2d(&{name}, {{0}}, scratch.{name}.taps, scratch.{name}.padding, {{1}});",
        constants=weights_and_channels(graph, op, name, axis=3) + c_struct("depthwise_conv_2d", name, params),
        constant_bytes=stored_bytes(weights, outputs),
        header="kernels/depthwise_conv_2d.h",
        scratch=f"struct {{ const int8_t *taps[{taps}]; int8_t padding[{channels}]; }} {name};",
        scratch_bytes=4 * taps + channels,
        activations=(op.inputs[0], op.outputs[0]),
    )


def pool_call(graph: Graph, op: Op, name: str) -> KernelCall:
    options = op.options
    assert isinstance(options, PoolOptions)
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if source.quantisation != result.quantisation:
        raise StageError(f"firmware: {op.kind} ({op.name}) changes scale or zero point, needed the same on both sides")
    lowest, highest = activation_range(result, options.activation)
    params = {
        "window": window_members(graph, op),
        "lowest": lowest,
        "highest": highest,
    }
    return struct_call(op, name, op.kind.lower(), "kernels/pool_2d.h", "pool_2d", params)


def softmax_call(graph: Graph, op: Op, name: str) -> KernelCall:
    assert isinstance(op.options, SoftmaxOptions)
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if scale_of(result) != 1 / 256 or zero_point_of(result) != -128:
        found = f"scale {scale_of(result):g} and zero point {zero_point_of(result)}"
        raise StageError(f"firmware: SOFTMAX ({op.name}) has output {found}, needed 1/256 and -128")
    unit = 1 << (31 - _SOFTMAX_INTEGER_BITS)
    factor = min(float(np.float32(op.options.beta)) * scale_of(source) * unit, 2.0**31 - 1)
    multiplier = quantised_multiplier(factor)
    reach = math.floor((2**_SOFTMAX_INTEGER_BITS - 1) * unit / 2.0**multiplier.shift)
    params = {
        "multiplier": multiplier.mantissa,
        "left": multiplier.shift,
        "smallest_difference": -min(reach, 255),
        "rows": source.elements // source.shape[-1],
        "depth": source.shape[-1],
    }
    if multiplier.shift < 0:
        raise StageError(
            f"firmware: SOFTMAX ({op.name}) has input scale {scale_of(source):g}, too small for its kernel"
        )
    return struct_call(op, name, "softmax", "kernels/softmax.h", "softmax", params)


def reshape_call(graph: Graph, op: Op, _name: str) -> KernelCall:
    return KernelCall(kernel="alias", activations=(op.inputs[0], op.outputs[0]))
