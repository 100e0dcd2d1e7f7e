"""The device's roundings on torch tensors of whole numbers, step for step: what fine-tuning only approximates.

The kernels multiply by a 31-bit factor, round, shift right and round again (`stages.graph.arithmetic.fixed_point`).
In double precision both roundings can be followed exactly; rounding once instead gives another int8 value up to once
in a hundred. Results are float32 steps, before clamping.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stages.graph.arithmetic.fixed_point import Multiplier, quantised_multiplier

_ADD_HEADROOM_BITS = 20
_AWAY = 1 + 2.0**-40  # sends halves away from zero, and is too little to move the next multiple of 2^-31


def rescaled(x: Tensor, factors: Sequence[float], along: tuple[int, ...]) -> Tensor:
    """x times a factor, or one per channel; `along` is the shape in which the factors meet x."""
    return _twice_rounded(x, [quantised_multiplier(factor) for factor in factors], along)


def added(x: Tensor, y: Tensor, scales: tuple[float, float], result_scale: float) -> Tensor:
    """ADD: both operands are lifted to a common finer grid first."""
    unit = 2 * max(scales)
    lifted = [
        rescaled(operand.double() * 2.0**_ADD_HEADROOM_BITS, (scale / unit,), ())
        for operand, scale in ((x, scales[0]), (y, scales[1]))
    ]
    return rescaled(lifted[0] + lifted[1], (unit / ((1 << _ADD_HEADROOM_BITS) * result_scale),), ())


def averaged(sums: Tensor, counts: Tensor, zero_point: float) -> Tensor:
    """AVERAGE_POOL_2D: the kernel averages q, zero point and all, and sends halves away from q = 0."""
    total = sums + counts * zero_point
    return ((total.abs() + (counts / 2).floor()) / counts).floor() * total.sign() - zero_point


def mean(sums: Tensor, count: int, factor: float) -> Tensor:
    """MEAN to another grid, `factor` being s_in / s_out: 1 / count goes into the multiplier, cut to 31 bits."""
    multiplier = quantised_multiplier(factor)
    bits = min(count.bit_length() - 1, 32, 31 + multiplier.shift)
    return _twice_rounded(sums, [Multiplier((multiplier.mantissa << bits) // count, multiplier.shift - bits)], ())


def mean_on_the_same_grid(sums: Tensor, count: int, zero_point: float) -> Tensor:
    """MEAN with the same grid before and behind: the kernel divides q as C does, towards zero."""
    return ((sums + count * zero_point) / count).trunc() - zero_point


def _twice_rounded(x: Tensor, multipliers: Sequence[Multiplier], along: tuple[int, ...]) -> Tensor:
    high = [m.mantissa * 2.0 ** (max(m.shift, 0) - 31) for m in multipliers]
    low = [_AWAY * 2.0 ** min(m.shift, 0) for m in multipliers]
    first, second = (torch.tensor(part, dtype=torch.float64).reshape(along).to(x.device) for part in (high, low))
    product = x.double() * first
    return product.add_(0.5).floor_().mul_(second).round_()
