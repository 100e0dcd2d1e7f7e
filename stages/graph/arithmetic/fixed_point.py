"""The integer arithmetic of TensorFlow Lite Micro, on numpy arrays: gemmlowp's fixed point with its double rounding.

A real factor m is a pair (multiplier, shift): m = multiplier * 2^(shift - 31), multiplier in [2^30, 2^31).
Values travel as int64 arrays that hold int32 numbers, so that no step can overflow unnoticed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)


@dataclass(frozen=True)
class Multiplier:
    """A real factor as a 31-bit mantissa and a power of two."""

    mantissa: int
    shift: int


def round_half_away(value: float) -> int:
    """C's round(): halves go away from zero."""
    return int(math.floor(abs(value) + 0.5)) * (1 if value >= 0 else -1)


def quantised_multiplier(factor: float) -> Multiplier:
    """The nearest (mantissa, shift) to a real factor of 0 or more."""
    if factor == 0:
        return Multiplier(0, 0)
    fraction, shift = math.frexp(factor)
    mantissa = round_half_away(fraction * 2**31)
    if mantissa == 2**31:
        mantissa, shift = mantissa // 2, shift + 1
    if shift < -31:  # too small for a right shift of an int32: the product is 0
        return Multiplier(0, 0)
    return Multiplier(mantissa, shift)


def high_multiply(first: np.ndarray, second: np.ndarray | int) -> np.ndarray:
    """first * second / 2^31, rounded to nearest, halves up, saturated.

    gemmlowp adds a nudge that depends on the sign and divides towards zero; for int32 factors that is this one shift.
    """
    product = first * second
    product += 1 << 30
    product >>= 31
    return np.minimum(product, INT32_MAX, out=product)


def rounding_shift_right(value: np.ndarray, exponent: np.ndarray | int) -> np.ndarray:
    """value / 2^exponent, rounded to nearest, halves away from zero."""
    half = np.left_shift(np.int64(1), exponent) >> 1
    # One less below zero, which sends halves down; a shift by nothing has no halves.
    nudged = value >> 63
    nudged &= -(half > 0).astype(np.int64)
    nudged += value
    nudged += half
    return np.right_shift(nudged, exponent, out=nudged)


def rescale(value: np.ndarray, mantissa: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """value * mantissa * 2^(shift - 31), rounded twice: once after the product and once after the right shift."""
    left, right = np.maximum(shift, 0), np.maximum(-np.asarray(shift), 0)
    # The left shift wraps like the int32 it is in C.
    shifted = (value << left).astype(np.int32).astype(np.int64) if np.any(left) else value
    return rounding_shift_right(high_multiply(shifted, mantissa), right)


def saturated(value: np.ndarray, bits: int = 32) -> np.ndarray:
    """Clamp to a signed integer of so many bits."""
    return np.clip(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def shifted_left(value: np.ndarray, bits: int) -> np.ndarray:
    """value * 2^bits, saturated."""
    return saturated(value << bits)


def upper_half(mantissa: int) -> int:
    """A 31-bit mantissa as the nearest 15-bit one."""
    return min((mantissa + (1 << 15)) >> 16, 2**15 - 1)


def high_multiply_int16(first: np.ndarray, second: int) -> np.ndarray:
    """first * second / 2^15, rounded to nearest, halves up; `second` is not negative, so nothing saturates."""
    return (first * second + (1 << 14)) >> 15


def truncating_high_multiply_int16(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """first * second / 2^15, rounded towards zero."""
    product = first * second
    return np.where(product < 0, -(-product >> 15), product >> 15)


def rounding_shift_right_int16(value: np.ndarray, exponent: int) -> np.ndarray:
    """`rounding_shift_right` in 16 bits, where the mask of the bits shifted out overflows from an exponent of 16 on."""
    if exponent < 16:
        return rounding_shift_right(value, exponent)
    return np.where(value < 0, -1, 1)


# e^(-2^k) for k = -2 ... 4 as 0.31 fixed point: the factors of exp(x) for each bit of -x from 1/4 up.
_EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
_EXP_MINUS_EIGHTH = 1895147668  # e^(-1/8) * 2^31
_ONE_THIRD = 715827883  # 2^31 / 3


def exp_of_negative(value: np.ndarray, integer_bits: int) -> np.ndarray:
    """exp(x) as 0.31 fixed point for x <= 0 given with so many integer bits, at most 5."""
    lowest_bit = 29 - integer_bits  # the bit worth 1/4
    quarter = 1 << lowest_bit
    # x = a - r with a in [-1/4, 0) and r a sum of powers of two from 1/4 up.
    part = (value & (quarter - 1)) - quarter
    rest = part - value
    result = _exp_near_minus_eighth(shifted_left(part, integer_bits))
    for bit, factor in enumerate(_EXP_FACTORS[: integer_bits + 2]):
        result = np.where(rest & (1 << (lowest_bit + bit)), high_multiply(result, factor), result)
    return np.where(value == 0, INT32_MAX, result)


def logistic(value: np.ndarray, integer_bits: int) -> np.ndarray:
    """1 / (1 + exp(-x)) as 0.31 fixed point for x given with so many integer bits."""
    upper = _one_over_one_plus(exp_of_negative(-np.abs(value), integer_bits))
    return np.where(value == 0, 1 << 30, np.where(value > 0, upper, INT32_MAX - upper))


def _exp_near_minus_eighth(value: np.ndarray) -> np.ndarray:
    """exp(x) for x in [-1/4, 0), both 0.31: a Taylor polynomial of degree 4 around -1/8."""
    x = value + (1 << 28)
    x2 = high_multiply(x, x)
    x3 = high_multiply(x2, x)
    x4 = high_multiply(x2, x2)
    tail = rounding_shift_right(high_multiply(rounding_shift_right(x4, 2) + x3, _ONE_THIRD) + x2, 1)
    return _EXP_MINUS_EIGHTH + high_multiply(x + tail, _EXP_MINUS_EIGHTH)


def reciprocal(value: np.ndarray, integer_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(1 / x as 0.31 after normalising x to [1, 2), bits by which x exceeds 1) for positive int32 x."""
    leading_zeros = 32 - np.frexp(value.astype(np.float64))[1]
    normalised = (value << leading_zeros) - (1 << 31)
    return _one_over_one_plus(normalised), integer_bits - leading_zeros


def tanh(value: np.ndarray, integer_bits: int) -> np.ndarray:
    """tanh(x) as 0.31 fixed point for x given with so many integer bits: (1 - e) / (1 + e) with e = exp(-2 |x|)."""
    power = exp_of_negative(-np.abs(value), integer_bits + 1)
    upper = shifted_left(_one_over_half_sum(power) - (1 << 29), 2)
    return np.where(value == 0, 0, np.where(value > 0, upper, -upper))


def inverse_square_root(value: int) -> tuple[int, int]:
    """1 / sqrt(value) for a positive int32 as (mantissa, shift): five Newton-Raphson steps in 3.28."""
    if value <= 1:
        return INT32_MAX, 0
    shift = 11
    while value >= 1 << 29:
        value //= 4
        shift += 1
    pairs = (31 - value.bit_length()) // 2 - 1  # of bits by which it is lifted, to [2^27, 2^29)
    shift -= pairs
    half = rounding_shift_right(np.array([value << 2 * pairs >> 1], np.int64), 1)
    x = np.array([1 << 28], np.int64)
    for _ in range(5):  # x (3/2 - v x^2 / 2); a product of two numbers with three integer bits has six
        cube = shifted_left(high_multiply(high_multiply(x, x), x), 6)
        x = shifted_left(high_multiply(x, 3 << 27) - high_multiply(half, cube), 3)
    mantissa = int(high_multiply(x, 1518500250)[0])  # sqrt(1/2)
    if shift < 0:
        mantissa, shift = mantissa << -shift, 0
    return mantissa, -shift


def quotients(numerators: np.ndarray, divisor: int, factor: Multiplier) -> np.ndarray:
    """numerators / divisor * factor for a divisor above 0, by its reciprocal of 31 bits."""
    if divisor == 0:
        return np.where(numerators >= 0, 1, -1) << 16
    inverse, bits = reciprocal(np.array([divisor], np.int64), 31)
    result = np.empty_like(numerators)
    for position, number in enumerate(numerators.tolist()):
        magnitude = number if number >= 0 else ~number
        headroom = 31 - magnitude.bit_length()  # leading bits that repeat the sign
        lifted = high_multiply(np.array([number << headroom], np.int64), int(inverse[0]))
        total = factor.shift - int(bits[0]) - headroom
        if total < -31:  # of 0 and -1: an x86 shifts by what is left of a division by 32, and the rounding goes up
            value = int(high_multiply(lifted, factor.mantissa)[0])
            result[position] = (value >> (-total & 31)) + (value >= 0)
            continue
        result[position] = rescale(lifted, factor.mantissa, total)[0]
    return result


def _one_over_one_plus(value: np.ndarray) -> np.ndarray:
    """1 / (1 + x) for x in [0, 1), both 0.31."""
    return shifted_left(_one_over_half_sum(value), 1)


def _one_over_half_sum(value: np.ndarray) -> np.ndarray:
    """2 / (1 + x) in 2.29 for x in [0, 1) as 0.31: three Newton-Raphson steps."""
    half = (value + INT32_MAX + 1) // 2  # (1 + x) / 2, rounded; the sum is positive
    x = 1515870810 + high_multiply(half, -1010580540)  # 48/17 - 32/17 * half
    for _ in range(3):
        error = (1 << 29) - high_multiply(half, x)
        x = x + shifted_left(high_multiply(x, error), 2)
    return x
