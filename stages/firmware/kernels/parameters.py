"""Parameters of the firmware's kernels, as members of their C structures; the arithmetic is TensorFlow Lite Micro's.

The input's zero point z is folded into the bias: sum(w * (x - z)) + b = sum(w * x) + (b - z * sum(w)). Padding is then
the value z, which cancels. See stages/graph/arithmetic/int8_reference.py for the same arithmetic on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.errors import StageError
from stages.firmware.kernels.c_text import c_array, c_channels
from stages.graph.arithmetic.fixed_point import Multiplier, quantised_multiplier
from stages.graph.arithmetic.int8_pointwise import activation_range, zero_point_of
from stages.graph.arithmetic.int8_reference import rescaling_factors
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions, Tensor
from stages.graph.padding import zero_pads

CHANNEL_BYTES = 12  # sizeof(struct requantise_channel)
PARAMETER_BYTES = 112  # at most, of the parameter structures that have no figure of their own
_MOST_OF_A_WINDOW = 2**16 - 1  # struct window has 16 bits for each of its members
_MOST_LEFT_SHIFT = 30


def weighted_operands(graph: Graph, op: Op) -> tuple[Tensor, Tensor, Tensor]:
    """Input, weights and output of a convolution or FULLY_CONNECTED."""
    return graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]], graph.tensors[op.outputs[0]]


def multiplier_for(factor: float, op: Op) -> Multiplier:
    """A real factor in fixed point."""
    multiplier = quantised_multiplier(factor)
    if multiplier.shift > _MOST_LEFT_SHIFT:
        raise StageError(f"firmware: {op.kind} ({op.name}) scales by {factor:g}, needed below 2^{_MOST_LEFT_SHIFT}")
    return multiplier


def output_range(result: Tensor, activation: str) -> dict[str, int]:
    lowest, highest = activation_range(result, activation)
    return {"zero_point": zero_point_of(result), "lowest": lowest, "highest": highest}


def scaling_members(factor: Multiplier) -> dict[str, int]:
    return {"multiplier": factor.mantissa, "left": max(0, factor.shift), "right": max(0, -factor.shift)}


def matrix_members(graph: Graph, op: Op, name: str, depth: int, outputs: int) -> dict[str, object]:
    assert isinstance(op.options, ConvOptions | ActivationOptions)
    return {
        "weights": f"{name}_weights",
        "channels": f"{name}_channels",
        "range": output_range(graph.tensors[op.outputs[0]], op.options.activation),
        "depth": depth,
        "outputs": outputs,
    }


def window_members(graph: Graph, op: Op) -> dict[str, int]:
    """Of a convolution or a pooling."""
    source, result, options = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]], op.options
    assert isinstance(options, ConvOptions | PoolOptions)
    if isinstance(options, PoolOptions):
        size, dilation = options.filter, (1, 1)
    else:
        size, dilation = graph.tensors[op.inputs[1]].shape[1:3], options.dilation
    _, input_height, input_width, channels = source.shape
    top, _, left, _ = zero_pads(source.shape[1:3], size, options.stride, dilation, options.padding)
    members = {
        "input_height": input_height,
        "input_width": input_width,
        "channels": channels,
        "output_height": result.shape[1],
        "output_width": result.shape[2],
        "height": size[0],
        "width": size[1],
        "stride_y": options.stride[0],
        "stride_x": options.stride[1],
        "dilation_y": dilation[0],
        "dilation_x": dilation[1],
        "padding_top": top,
        "padding_left": left,
    }
    for name, value in members.items():
        if value > _MOST_OF_A_WINDOW:
            found = f"{name.replace('_', ' ')} {value}"
            raise StageError(f"firmware: a window over an image has {found}, needed at most {_MOST_OF_A_WINDOW}")
    return members


def folded_bias(graph: Graph, op: Op, axis: int) -> np.ndarray:
    """Bias of each output with the input's zero point folded in, as int64; `axis` of the weights counts the outputs."""
    source, weights, _ = weighted_operands(graph, op)
    assert weights.data is not None
    sums = weights.data.astype(np.int64).sum(axis=tuple(a for a in range(weights.data.ndim) if a != axis))
    return stored_bias(graph, op, len(sums)) - zero_point_of(source) * sums


def stored_bias(graph: Graph, op: Op, outputs: int) -> np.ndarray:
    """Bias of each output as the network has it, as int64."""
    if len(op.inputs) < 3 or op.inputs[2] < 0:
        return np.zeros(outputs, np.int64)
    stored = graph.tensors[op.inputs[2]].data
    assert stored is not None
    return stored.astype(np.int64).reshape(-1)


def weights_title(weights: Tensor) -> str:
    scales = weights.quantisation.scale if weights.quantisation else ()
    shape = "x".join(map(str, weights.shape))
    return f"weights {shape}, scales ({len(scales)}) from {min(scales):.4g} to {max(scales):.4g}"


def weights_and_channels(graph: Graph, op: Op, name: str, axis: int) -> str:
    """C definitions of the weights and of bias and scaling per output channel; `axis` counts the outputs."""
    _, weights, _ = weighted_operands(graph, op)
    assert weights.data is not None
    folded = folded_bias(graph, op, axis).astype(np.int32)  # wraps, as the kernel's sums do
    multipliers = channel_multipliers(graph, op, len(folded))
    array = c_array("int8_t", f"{name}_weights", weights.data, weights_title(weights))
    return array + c_channels(f"{name}_channels", folded, multipliers)


def channel_multipliers(graph: Graph, op: Op, outputs: int) -> Sequence[Multiplier]:
    """One per output channel of input scale * weight scale / output scale."""
    source, weights, result = weighted_operands(graph, op)
    multipliers = [multiplier_for(factor, op) for factor in rescaling_factors(source, weights, result)]
    return multipliers * outputs if len(multipliers) == 1 else multipliers


def stored_bytes(weights: Tensor, outputs: int) -> int:
    """Flash that an operator with weights takes."""
    return weights.nbytes + CHANNEL_BYTES * outputs + PARAMETER_BYTES
