"""Operators that change a tensor's shape as calls of portable kernels: MEAN, PAD, CONCATENATION."""

from __future__ import annotations

import math

from pipeline.errors import StageError
from stages.firmware.kernels.calls import KernelCall, struct_call
from stages.firmware.kernels.elementwise import operand_places
from stages.firmware.kernels.parameters import multiplier_for, output_range, scaling_members
from stages.graph.arithmetic.fixed_point import Multiplier
from stages.graph.arithmetic.int8_pointwise import scale_of, zero_point_of
from stages.graph.graph import ITEM_BYTES, ConcatOptions, Graph, Op

_PAD_AXES = 4  # of boards/firmware/kernels/copy.h
_MEAN_AXES = 2  # of each kind, in boards/firmware/kernels/mean.h
_ONE_ELEMENT = (1, 0)


def mean_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """The division is part of the multiplier, which the runtime keeps at 31 bits as far as its shift allows."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    axes = graph.tensors[op.inputs[1]].data
    assert axes is not None
    over = {int(axis) % len(source.shape) for axis in axes.flat}
    count = math.prod(source.shape[axis] for axis in over)
    factor = multiplier_for(scale_of(source) / scale_of(result), op)
    bits = min(count.bit_length() - 1, 32, 31 + factor.shift)
    kept, summed = joined_axes(op, source.shape, over)
    params = {
        "kept": kept,
        "summed": summed,
        "offset": -zero_point_of(source) * count,
        **scaling_members(Multiplier((factor.mantissa << bits) // count, factor.shift - bits)),
        "range": output_range(result, "none"),
    }
    return struct_call(op, name, "mean", "kernels/mean.h", "mean", params)


def joined_axes(op: Op, shape: tuple[int, ...], over: set[int]) -> list[list[dict[str, int]]]:
    """Axes that stay and that go as members of struct mean_axis, neighbours of one kind joined."""
    joined: list[tuple[bool, int, int]] = []
    for axis in reversed(range(len(shape))):
        size, step = shape[axis], math.prod(shape[axis + 1 :])
        if size == 1:
            continue
        if joined and joined[-1][0] == (axis in over):
            joined[-1] = (joined[-1][0], joined[-1][1] * size, joined[-1][2])
        else:
            joined.append((axis in over, size, step))
    kinds = []
    for goes in (False, True):
        own = [(size, step) for is_summed, size, step in reversed(joined) if is_summed == goes]
        if len(own) > _MEAN_AXES:
            raise StageError(
                f"firmware: {op.kind} ({op.name}) of {shape} over axes {sorted(over)} takes {len(own)} loops of a "
                f"kind, needed at most {_MEAN_AXES}"
            )
        axes = [_ONE_ELEMENT] * (_MEAN_AXES - len(own)) + own
        kinds.append([{"size": size, "step": step} for size, step in axes])
    return kinds


def pad_call(graph: Graph, op: Op, name: str) -> KernelCall:
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    amounts = graph.tensors[op.inputs[1]].data
    assert amounts is not None
    missing = _PAD_AXES - len(source.shape)
    if missing < 0:
        raise StageError(f"firmware: PAD ({op.name}) of {len(source.shape)} axes, needed at most {_PAD_AXES}")
    item = ITEM_BYTES[source.dtype]
    steps = [math.prod(result.shape[axis + 1 :]) * item for axis in range(len(result.shape))]
    params = {
        "sizes": [1] * missing + [*source.shape[:-1], source.shape[-1] * item],
        "steps": [0] * missing + [*steps[:-1], 1],
        "start": sum(int(before) * step for (before, _), step in zip(amounts, steps, strict=True)),
        "output_elements": result.nbytes,
        "value": zero_point_of(result),
    }
    return struct_call(op, name, "pad", "kernels/copy.h", "pad", params)


def concatenation_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """One call for each part."""
    assert isinstance(op.options, ConcatOptions)
    result = graph.tensors[op.outputs[0]]
    axis = op.options.axis % len(result.shape)
    rows = math.prod(result.shape[:axis])
    pitch = result.nbytes // rows
    places, arrays, stored = operand_places(graph, op, name)
    activations = tuple(graph.activations_of(op))
    calls, offset = [], 0
    for place, index in zip(places, op.inputs, strict=True):
        row_bytes = graph.tensors[index].nbytes // rows
        calls.append(f"copy_rows({place}, {rows}, {row_bytes}, {{{len(activations)}}} + {offset}, {pitch});")
        offset += row_bytes
    return KernelCall(
        kernel="copy_rows",
        call="\n    ".join(calls),
        constants=arrays,
        constant_bytes=stored,
        header="kernels/copy.h",
        activations=(*activations, op.outputs[0]),
    )
