"""Tests of difference against slow and obvious ones."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from stages.tools.comparison.tests_of_difference import (
    coin_p,
    holm,
    mcnemar,
    student_p,
    two_proportions,
    welch_p,
    wilson,
)


@pytest.mark.parametrize("throws", range(1, 11))
def test_the_coin_is_thrown_in_every_way(throws: int) -> None:
    ways = [sum(way) for way in itertools.product((0, 1), repeat=throws)]
    for fewer in range(throws // 2 + 1):
        as_uneven = sum(min(heads, throws - heads) <= fewer for heads in ways) / len(ways)
        assert coin_p(fewer, throws) == pytest.approx(as_uneven)
    assert coin_p(0, 0) == 1.0


@pytest.mark.parametrize("freedom", [1, 2.5, 4, 29, 58.3, 1000])
@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 2.5, 4.0, 9.0])
def test_student_is_the_area_under_its_density(t: float, freedom: float) -> None:
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    steps = 20_000
    inner = [scale * (1 + (t * i / steps) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(steps + 1)]
    area = (sum(inner) - (inner[0] + inner[-1]) / 2) * t / steps
    assert student_p(t, freedom) == pytest.approx(1 - 2 * area, abs=1e-7)
    assert student_p(-t, freedom) == student_p(t, freedom)


def test_equal_means_are_told_different_as_rarely_as_promised() -> None:
    rng = random.Random(5)
    found = 0
    for _ in range(4000):
        a, b = ([rng.gauss(0, sigma) for _ in range(n)] for sigma, n in ((1, 8), (3, 5)))
        means, sigmas = [], []
        for values in (a, b):
            mean = sum(values) / len(values)
            means.append(mean)
            sigmas.append(math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)))
        found += welch_p(means[0], sigmas[0], 8, means[1], sigmas[1], 5) < 0.05
    assert 0.03 < found / 4000 < 0.07


def test_without_spread_means_are_equal_or_not() -> None:
    assert (welch_p(1, 0, 30, 1, 0, 30), welch_p(1, 0, 30, 1.1, 0, 30)) == (1.0, 0.0)


def test_holm_multiplies_the_smallest_by_their_number() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_intervals_hold_the_truth_as_often_as_promised() -> None:
    rng, share, n = random.Random(3), 0.95, 300
    inside = paired = 0
    for _ in range(1500):
        right_a = [rng.random() < share for _ in range(n)]
        right_b = [right if rng.random() < 0.9 else rng.random() < share for right in right_a]
        low, high = wilson(sum(right_a) / n, n)
        inside += low <= share <= high
        found = mcnemar(right_a, right_b)
        paired += found.low <= 0 <= found.high
    assert 0.92 < inside / 1500 < 0.98 and 0.90 < paired / 1500 < 0.99


def test_two_shares_of_many_examples() -> None:
    found = two_proportions(0.95, 720, 0.92, 720)
    assert found.p == pytest.approx(0.0209, abs=2e-4) and found.low < -0.03 < found.high
    assert two_proportions(1.0, 10, 1.0, 10).p == 1.0
