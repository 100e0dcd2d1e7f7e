"""Rarer operators as calls of portable kernels: resizing, reductions, products, transposed convolutions, LSTM, SVDF."""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import StageError
from stages.firmware.kernels.c_text import c_array, c_channels, c_struct
from stages.firmware.kernels.calls import KernelCall, struct_call
from stages.firmware.kernels.elementwise import operand_places
from stages.firmware.kernels.parameters import (
    PARAMETER_BYTES,
    channel_multipliers,
    multiplier_for,
    output_range,
    scaling_members,
    stored_bias,
    stored_bytes,
    weighted_operands,
    weights_title,
)
from stages.firmware.kernels.shape import joined_axes
from stages.firmware.kernels.state import state_name
from stages.graph.arithmetic.fixed_point import Multiplier
from stages.graph.arithmetic.int8_lstm import CELL_STATE, GATES, OUTPUT_STATE, cell_of, sigmoid_table
from stages.graph.arithmetic.int8_pointwise import scale_of, zero_point_of
from stages.graph.arithmetic.int8_rare import axes_of, numbers
from stages.graph.graph import ConvOptions, Graph, Op
from stages.graph.padding import zero_pads

_BATCHES = 3  # of boards/firmware/kernels/more/product.h
_ONE = 1024


def resize_bilinear_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source, result = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    align_corners, half_pixels = map(int, numbers(op))
    axes = []
    for before, after in zip(source[1:3], result[1:3], strict=True):
        scale = (before * _ONE + after // 2) // after
        if align_corners and after > 1:
            scale = ((before - 1) * _ONE + (after - 1) // 2) // (after - 1)
        start = scale // 2 - _ONE // 2 if half_pixels else 0
        axes.append({"input": before, "output": after, "scale": scale, "start": start})
    params = {"down": axes[0], "across": axes[1], "channels": source[3]}
    return struct_call(op, name, "resize_bilinear", "kernels/more/resize.h", "resize_bilinear", params)


def sum_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """A mean without the division."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    kept, summed = joined_axes(op, source.shape, set(axes_of(graph, op)))
    count = math.prod(source.shape[axis] for axis in axes_of(graph, op))
    params = {
        "kept": kept,
        "summed": summed,
        "offset": -zero_point_of(source) * count,
        **scaling_members(multiplier_for(scale_of(source) / scale_of(result), op)),
        "range": output_range(result, "none"),
    }
    return struct_call(op, name, "mean", "kernels/mean.h", "mean", params)


def reduce_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """REDUCE_MAX and REDUCE_MIN."""
    kept, gone = joined_axes(op, graph.tensors[op.inputs[0]].shape, set(axes_of(graph, op)))
    params = {"kept": kept, "gone": gone, "is_largest": int(op.kind == "REDUCE_MAX")}
    return struct_call(op, name, "reduce_extreme", "kernels/more/reduce.h", "reduce", params)


def best_index_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """ARG_MAX and ARG_MIN."""
    shape, (axis,) = graph.tensors[op.inputs[0]].shape, axes_of(graph, op)
    params = {
        "outer": math.prod(shape[:axis]),
        "size": shape[axis],
        "inner": math.prod(shape[axis + 1 :]),
        "is_largest": int(op.kind == "ARG_MAX"),
    }
    return KernelCall(
        kernel="best_index",
        call=f"best_index(&{name}, {{0}}, (int32_t *)(void *){{1}});",
        constants=c_struct("best_index", name, params),
        constant_bytes=PARAMETER_BYTES,
        header="kernels/more/reduce.h",
        activations=(op.inputs[0], op.outputs[0]),
    )


def l2_normalise_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source = graph.tensors[op.inputs[0]]
    depth = source.shape[-1]
    params = {"rows": source.elements // depth, "depth": depth, "zero_point": zero_point_of(source)}
    return struct_call(op, name, "l2_normalise", "kernels/more/reduce.h", "l2_normalise", params)


def transpose_conv_call(graph: Graph, op: Op, name: str) -> KernelCall:
    assert isinstance(op.options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    outputs, height, width, channels = weights.shape
    stride = op.options.stride
    top, _, left, _ = zero_pads(result.shape[1:3], (height, width), stride, (1, 1), op.options.padding)
    window = {
        **{"input_height": result.shape[1], "input_width": result.shape[2], "channels": channels},
        **{"output_height": source.shape[1], "output_width": source.shape[2], "height": height, "width": width},
        **{"stride_y": stride[0], "stride_x": stride[1], "padding_top": top, "padding_left": left},
    }
    params = {
        "weights": f"{name}_weights",
        "channels": f"{name}_channels",
        "range": output_range(result, op.options.activation),
        "window": window,
        "outputs": outputs,
        "input_zero_point": zero_point_of(source),
    }
    array = c_array("int8_t", f"{name}_weights", weights.data, weights_title(weights))
    bias = stored_bias(graph, op, outputs).astype(np.int32)
    channel = c_channels(f"{name}_channels", bias, channel_multipliers(graph, op, outputs))
    return KernelCall(
        kernel="transpose_conv",
        call=f"transpose_conv(&{name}, {{0}}, {{1}});",
        constants=array + channel + c_struct("transpose_conv", name, params),
        constant_bytes=stored_bytes(weights, outputs),
        header="kernels/more/product.h",
        activations=(op.inputs[0], op.outputs[0]),
    )


def batch_matmul_call(graph: Graph, op: Op, name: str) -> KernelCall:
    first, second, result = (graph.tensors[i] for i in (*op.inputs, op.outputs[0]))
    turned = [bool(value) for value in numbers(op)[:2]]
    batches = list(result.shape[:-2])
    if len(batches) > _BATCHES:
        raise StageError(f"firmware: BATCH_MATMUL ({op.name}) has {len(batches)} axes of batches, needed {_BATCHES}")
    steps = [_batch_steps(tensor.shape, len(batches)) for tensor in (first, second)]
    rows, columns = result.shape[-2:]
    depth = first.shape[-2] if turned[0] else first.shape[-1]
    factor = multiplier_for(scale_of(first) * scale_of(second) / scale_of(result), op)
    missing = _BATCHES - len(batches)
    params = {
        "batches": [1] * missing + batches,
        "steps": [[0] * missing + each for each in steps],
        **{"rows": rows, "depth": depth, "columns": columns},
        "row_steps": [1, rows] if turned[0] else [depth, 1],
        "column_steps": [1, depth] if turned[1] else [columns, 1],
        "zero_points": [zero_point_of(first), zero_point_of(second)],
        **scaling_members(factor),
        "range": output_range(result, "none"),
    }
    places, arrays, stored = operand_places(graph, op, name)
    activations = tuple(graph.activations_of(op))
    return KernelCall(
        kernel="batch_matmul",
        call=f"batch_matmul(&{name}, {', '.join(places)}, {{{len(activations)}}});",
        constants=arrays + c_struct("batch_matmul", name, params),
        constant_bytes=stored + PARAMETER_BYTES,
        header="kernels/more/product.h",
        activations=(*activations, op.outputs[0]),
    )


def _batch_steps(shape: tuple[int, ...], axes: int) -> list[int]:
    """Elements from one batch to the next; 0 where a tensor has one for all."""
    batches = (1,) * (axes + 2 - len(shape)) + shape[:-2]
    inner = math.prod(shape[-2:])
    return [0 if side == 1 else inner * math.prod(batches[axis + 1 :]) for axis, side in enumerate(batches)]


def _factor(multiplier: Multiplier) -> dict[str, int]:
    return scaling_members(multiplier)


def svdf_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source, feature, time, result = (graph.tensors[i] for i in (*op.inputs[:3], op.outputs[0]))
    state = graph.tensors[op.inputs[4]]
    assert feature.data is not None and time.data is not None
    filters, rank = feature.shape[0], int(numbers(op)[0])
    bias = graph.tensors[op.inputs[3]].data if op.inputs[3] >= 0 else np.zeros(filters // rank, np.int32)
    assert bias is not None
    offsets = -zero_point_of(source) * feature.data.astype(np.int64).sum(axis=1)
    arrays = {
        "feature": ("int8_t", feature.data),
        "time": ("int16_t", time.data),
        "bias": ("int32_t", bias),
        "offsets": ("int32_t", offsets),
    }
    params = {
        **{key: f"{name}_{key}" for key in arrays},
        **{"inputs": feature.shape[1], "filters": filters, "memory": time.shape[1], "rank": rank},
        "to_state": _factor(multiplier_for(scale_of(source) * scale_of(feature) / scale_of(state), op)),
        "to_output": _factor(multiplier_for(scale_of(state) * scale_of(time) / scale_of(result), op)),
        "range": output_range(result, "none"),
    }
    constants = "".join(c_array(kind, f"{name}_{key}", values, key) for key, (kind, values) in arrays.items())
    return KernelCall(
        kernel="svdf",
        call=f"svdf(&{name}, {{0}}, {state_name(op.inputs[4])}, {{1}});",
        constants=constants + c_struct("svdf", name, params),
        constant_bytes=feature.nbytes + time.nbytes + 4 * (filters + bias.size) + PARAMETER_BYTES,
        header="kernels/more/recurrent.h",
        activations=(op.inputs[0], op.outputs[0]),
    )


def lstm_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source, hidden = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[OUTPUT_STATE]]
    cell, inputs, units = cell_of(graph, op), source.shape[-1], hidden.elements
    constants, stored, gates = c_array("uint16_t", f"{name}_sigmoid", sigmoid_table(), "sigmoid"), 512, []
    for title, gate in zip(GATES, cell.gates, strict=True):
        weights, recurrent, bias = (
            graph.tensors[i].data for i in (gate.input_weights, gate.recurrent_weights, gate.bias)
        )
        assert weights is not None and recurrent is not None and bias is not None
        arrays = {
            "weights": ("int8_t", weights),
            "recurrent": ("int8_t", recurrent),
            "bias": ("int32_t", _folded(bias, weights, zero_point_of(source))),
            "recurrent_bias": ("int32_t", _folded(0, recurrent, zero_point_of(hidden))),
        }
        for key, (kind, values) in arrays.items():
            constants += c_array(kind, f"{name}_{title}_{key}", values, f"{title} gate, {key}")
        stored += weights.size + recurrent.size + 8 * units
        own: dict[str, object] = {key: f"{name}_{title}_{key}" for key in arrays}
        own |= {"factor": _factor(gate.input_factor), "recurrent_factor": _factor(gate.recurrent_factor)}
        gates.append(own)
    params = {
        "gates": gates,
        "sigmoid": f"{name}_sigmoid",
        **{"steps": source.elements // inputs, "inputs": inputs, "units": units},
        "forgotten": _factor(cell.forget_factor),
        "added": _factor(cell.input_factor),
        "shown": _factor(cell.output_factor),
        **{"tanh_multiplier": cell.tanh_multiplier, "tanh_shift": cell.tanh_shift, "clip": cell.cell_clip},
        "zero_point": zero_point_of(hidden),
    }
    states = ", ".join(state_name(op.inputs[place]) for place in (OUTPUT_STATE, CELL_STATE))
    return KernelCall(
        kernel="lstm",
        call=f"lstm(&{name}, {{0}}, scratch.{name}, {states}, {{1}});",
        constants=constants + c_struct("lstm", name, params),
        constant_bytes=stored + 3 * PARAMETER_BYTES,
        header="kernels/more/recurrent.h",
        scratch=f"int16_t {name}[{4 * units}];",
        scratch_bytes=8 * units,
        activations=(op.inputs[0], op.outputs[0]),
    )


def _folded(bias: np.ndarray | int, weights: np.ndarray, zero_point: int) -> np.ndarray:
    return (bias - zero_point * weights.astype(np.int64).sum(axis=1)).astype(np.int32)
