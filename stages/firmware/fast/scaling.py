"""Requantisation of a layer's sums for the fast kernels, or the finding that theirs would not be exact.

TensorFlow Lite Micro rounds twice: the doubling high product with the multiplier, then the shift to the right. With
weights and bias doubled beforehand (and shifted left, where the multiplier wants that), SMMLAR does the first, with
half of the last place and the zero point added at no cost; see assembly/scaling.py, also for what `commonly_shifted`
does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.firmware.assembly.dot import Requantisation
from stages.firmware.kernels.parameters import channel_multipliers, folded_bias, weighted_operands
from stages.graph.arithmetic.int8_pointwise import activation_range, zero_point_of
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op

_MOST_LEFT_SHIFT = 7  # int8 weights << (1 + shift) stay within int16
_LARGEST_WEIGHT = 2**15 - 1
_USUAL_RIGHT = 12  # as a common shift, so that layers of one shape share their code
_MOST_COMMON_RIGHT = 22  # addends up to 129 * 2^22, beside products below 2^30


@dataclass(frozen=True)
class Scaling:
    """Per output channel, for the requantisation of assembly/scaling.py."""

    factor: np.ndarray  # of weights and bias: twice 2^left
    bias: np.ndarray  # multiplied already
    multiplier: np.ndarray
    right: np.ndarray  # shift
    zero_point: int  # of the output
    addend: np.ndarray  # half of the last place and the zero point, before the shift
    is_common: bool = False  # one shift serves all channels

    @property
    def some_unshifted(self) -> bool:
        return bool((self.right == 0).any())

    @property
    def zero(self) -> int:
        """What, shifted left by one less than the right shift, is the zero point and half of the last place."""
        return 2 * self.zero_point + 1

    @property
    def mask(self) -> np.ndarray:
        """Of the sign: 0 where ties go upwards."""
        return np.where(self.right > 0, -1, 0)

    @property
    def words(self) -> np.ndarray:
        """outputs x (multiplier, addend, right shift, mask), for a layer with unshifted channels."""
        return np.stack([self.multiplier, self.addend, self.right, self.mask], axis=1)


def requantisation(graph: Graph, op: Op, scaling: Scaling) -> Requantisation:
    """What the assembly has to do."""
    assert isinstance(op.options, ConvOptions | ActivationOptions)
    lowest, highest = activation_range(graph.tensors[op.outputs[0]], op.options.activation)
    is_signed = lowest < scaling.zero_point
    common = int(scaling.right[0]) if scaling.is_common else 0
    return Requantisation(lowest, highest, is_signed, is_signed and scaling.some_unshifted, common)


def exact_scaling(graph: Graph, op: Op, axis: int) -> Scaling | None:
    """None where the short arithmetic might differ from the reference."""
    _, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    bias = folded_bias(graph, op, axis)
    multipliers = channel_multipliers(graph, op, len(bias))
    mantissa = np.array([m.mantissa for m in multipliers], np.int64)
    shift = np.where(mantissa == 0, -1, np.array([m.shift for m in multipliers], np.int64))
    left, right = np.maximum(0, shift), np.maximum(0, -shift)
    if left.max() > _MOST_LEFT_SHIFT:
        return None
    factor = 2 << left
    sizes = np.abs(weights.data.astype(np.int64)).sum(axis=tuple(a for a in range(weights.data.ndim) if a != axis))
    largest = (np.abs(bias) + 128 * sizes) * factor
    if largest.max() >= 2**31:
        return None
    products = (largest * mantissa >> 32) + 1
    # A channel whose sums all end at the zero point, however far its shift goes, needs none of it.
    is_dead = products + 1 < (1 << right) >> 1
    mantissa, right = np.where(is_dead, 0, mantissa), np.where(is_dead, 1, right)
    zero_point = zero_point_of(result)
    if (np.where(is_dead, 0, products) + np.abs(_addend(right, zero_point)) + 1 >= 2**31).any():
        return None
    return Scaling(factor, bias * factor, mantissa, right, zero_point, _addend(right, zero_point))


def commonly_shifted(graph: Graph, op: Op, scaling: Scaling, axis: int) -> Scaling:
    """The same with one right shift for all channels, if all that is negative ends at the zero point and int16 allows.

    A channel's sums get finer by as many bits as its shift gets longer; its own half stays, at least one bit long.
    """
    _, weights, _ = weighted_operands(graph, op)
    assert weights.data is not None
    if requantisation(graph, op, scaling).is_signed:
        return scaling
    sizes = np.abs(weights.data.astype(np.int64))
    others = tuple(a for a in range(sizes.ndim) if a != axis)
    largest_sum = np.abs(scaling.bias) + 128 * sizes.sum(axis=others) * scaling.factor
    largest_weight = np.maximum(sizes.max(axis=others), 1) * scaling.factor
    room = np.minimum(_LARGEST_WEIGHT // largest_weight, (2**31 - 1) // np.maximum(largest_sum, 1))
    is_alive = scaling.multiplier != 0
    least = np.max(scaling.right + 1, where=is_alive, initial=1)
    most = np.min(scaling.right + _whole_bits(room), where=is_alive, initial=_MOST_COMMON_RIGHT)
    if least > most:
        return scaling
    common = min(max(_USUAL_RIGHT, least), most)
    finer = np.where(is_alive, common - scaling.right, 0)
    addend = np.where(is_alive, (scaling.addend << finer) + (1 << finer >> 1), scaling.zero_point << common)
    return replace(
        scaling,
        factor=scaling.factor << finer,
        bias=scaling.bias << finer,
        right=np.full_like(scaling.right, common),
        addend=addend,
        is_common=True,
    )


def _whole_bits(room: np.ndarray) -> np.ndarray:
    """The largest n with 2^n within each of them, 0 at least."""
    return np.array([max(int(each), 1).bit_length() - 1 for each in room])


def _addend(right: np.ndarray, zero_point: int) -> np.ndarray:
    return np.where(right > 0, (1 << right) >> 1, 0) + (zero_point << right)
