"""Is a difference more than noise? Exact where it can be: counts of test examples, and means of few measurements.

McNemar's test takes the same examples in both runs: only those count that one tells right and the other wrong, and they
fall to either side like a coin. Welch's takes means with spreads of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_Z95 = NormalDist().inv_cdf(0.975)
_PRECISE = 1e-15
_MOST_TERMS = 500


@dataclass(frozen=True)
class Difference:
    """Of two shares, with the interval that holds it in 95 of 100 cases, and how likely chance alone gives as much."""

    value: float
    low: float
    high: float
    p: float
    how: str


def mcnemar(right_a: Sequence[bool], right_b: Sequence[bool]) -> Difference:
    """The same examples, told by two networks; exact."""
    n = len(right_a)
    lost = sum(a and not b for a, b in zip(right_a, right_b, strict=True))
    won = sum(b and not a for a, b in zip(right_a, right_b, strict=True))
    value = (won - lost) / n
    half = _Z95 * math.sqrt(max(won + lost - (won - lost) ** 2 / n, 0)) / n
    how = f"McNemar, exact: {won} of {n} examples gained, {lost} lost"
    return Difference(value, value - half, value + half, coin_p(min(won, lost), won + lost), how)


def two_proportions(share_a: float, n_a: int, share_b: float, n_b: int) -> Difference:
    """Examples that are not the same, or of which only the share is known."""
    value = share_b - share_a
    half = _Z95 * math.sqrt(share_a * (1 - share_a) / n_a + share_b * (1 - share_b) / n_b)
    pooled = (share_a * n_a + share_b * n_b) / (n_a + n_b)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n_a + 1 / n_b))
    p = 1.0 if error == 0 else 2 * NormalDist().cdf(-abs(value) / error)
    return Difference(value, value - half, value + half, p, f"two proportions, n {n_a} and {n_b}")


def wilson(share: float, n: int) -> tuple[float, float]:
    """Interval of a share, 95 %."""
    centre, width = share + _Z95**2 / (2 * n), _Z95 * math.sqrt(share * (1 - share) / n + _Z95**2 / (4 * n * n))
    return (centre - width) / (1 + _Z95**2 / n), (centre + width) / (1 + _Z95**2 / n)


def coin_p(fewer: int, throws: int) -> float:
    """Two-sided: how often a fair coin falls at least as unevenly."""
    if throws == 0:
        return 1.0
    below = sum(math.comb(throws, number) for number in range(fewer + 1))
    return min(1.0, 2 * below / 2**throws)


def welch_p(mean_a: float, sigma_a: float, n_a: int, mean_b: float, sigma_b: float, n_b: int) -> float:
    """Two-sided, for means of n measurements with their standard deviations."""
    part_a, part_b = sigma_a**2 / n_a, sigma_b**2 / n_b
    if part_a + part_b == 0:
        return 1.0 if mean_a == mean_b else 0.0
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1))
    return student_p((mean_b - mean_a) / math.sqrt(part_a + part_b), freedom)


def student_p(t: float, freedom: float) -> float:
    """Both tails of Student's distribution."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def anova_p(groups: Sequence[Sequence[float]]) -> float:
    """One way: how likely chance alone makes the means of these groups differ as much."""
    n, means = sum(map(len, groups)), [sum(group) / len(group) for group in groups]
    middle = sum(map(sum, groups)) / n
    between = sum(len(group) * (mean - middle) ** 2 for group, mean in zip(groups, means, strict=True))
    within = sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    above, below = len(groups) - 1, n - len(groups)
    if within == 0:
        return 1.0 if between == 0 else 0.0
    ratio = between / above / (within / below)
    return _incomplete_beta(below / (below + above * ratio), below / 2, above / 2)


def holm(values: Sequence[float]) -> list[float]:
    """The p of several tests at once: the smallest times their number, and so on, never falling."""
    adjusted, highest = [1.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, values[index] * (len(values) - rank)))
        adjusted[index] = highest
    return adjusted


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised; by its continued fraction."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, c, d = 1.0, 1.0, 0.0
    for term in range(_MOST_TERMS):
        half = term // 2
        if term == 0:
            factor = 1.0
        elif term % 2 == 0:
            factor = half * (b - half) * x / ((a + term - 1) * (a + term))
        else:
            factor = -(a + half) * (a + b + half) * x / ((a + term - 1) * (a + term))
        d = 1 / (1 + factor * d)
        c = 1 + factor / c
        fraction *= c * d
        if term and abs(c * d - 1) < _PRECISE:
            break
    return min(1.0, front * (fraction - 1))
