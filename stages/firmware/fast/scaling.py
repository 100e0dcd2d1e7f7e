"""Requantisation of a layer's sums for the fast kernels, or the finding that theirs would not be exact.

TensorFlow Lite Micro rounds twice: the doubling high product with the multiplier, then the shift to the right. With
weights and bias doubled beforehand (and shifted left, where the multiplier wants that), SMMLAR does the first, with
half of the last place and the zero point added at no cost; see assembly/dot.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.firmware.kernels.parameters import channel_multipliers, folded_bias, weighted_operands
from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import Graph, Op

_MOST_RIGHT_SHIFT = 22  # zero point << shift stays within 30 bits
_MOST_LEFT_SHIFT = 7  # int8 weights << (1 + shift) stay within int16


@dataclass(frozen=True)
class Scaling:
    """Per output channel, for the requantisation of five instructions (assembly/dot.py)."""

    factor: np.ndarray  # of weights and bias: twice 2^left
    bias: np.ndarray  # multiplied already
    multiplier: np.ndarray
    right: np.ndarray  # shift
    zero_point: int  # of the output

    @property
    def some_unshifted(self) -> bool:
        return bool((self.right == 0).any())

    @property
    def zero(self) -> int:
        """What, shifted left by one less than the right shift, is the zero point and half of the last place."""
        return 2 * self.zero_point + 1

    @property
    def words(self) -> np.ndarray:
        """outputs x (multiplier, addend, right shift, mask), for a layer with unshifted channels."""
        half = np.where(self.right > 0, (1 << self.right) >> 1, 0)
        addend = half + (self.zero_point << self.right)
        return np.stack([self.multiplier, addend, self.right, np.where(self.right > 0, -1, 0)], axis=1)


def exact_scaling(graph: Graph, op: Op, axis: int) -> Scaling | None:
    """None where the short arithmetic might differ from the reference."""
    _, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    bias = folded_bias(graph, op, axis)
    multipliers = channel_multipliers(graph, op, len(bias))
    mantissa = np.array([m.mantissa for m in multipliers], np.int64)
    shift = np.where(mantissa == 0, -1, np.array([m.shift for m in multipliers], np.int64))
    left, right = np.maximum(0, shift), np.maximum(0, -shift)
    factor = 2 << left
    sizes = np.abs(weights.data.astype(np.int64)).sum(axis=tuple(a for a in range(weights.data.ndim) if a != axis))
    largest = (np.abs(bias) + 128 * sizes) * factor
    if largest.max() >= 2**31 or left.max() > _MOST_LEFT_SHIFT or right.max() > _MOST_RIGHT_SHIFT:
        return None
    return Scaling(factor, bias * factor, mantissa, right, zero_point_of(result))
