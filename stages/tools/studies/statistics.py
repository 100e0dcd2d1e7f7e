"""Figures of several seeds -> means with standard errors, and which differences are more than chance, in words.

With a baseline every other level is compared with it, the other factors being equal: Welch's test, and Holm's
correction for their number. Without one the question is whether the cells differ at all: analysis of variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from stages.tools.comparison.tests_of_difference import anova_p, holm, welch_p
from stages.tools.studies.points import Points

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Mean:
    """Of `n` seeds; the standard error of one is not known."""

    value: float
    error: float | None
    n: int


def mean_of(values: Sequence[float]) -> Mean | None:
    known = [float(value) for value in values if not pd.isna(value)]
    if not known:
        return None
    n, value = len(known), sum(known) / len(known)
    if n == 1:
        return Mean(value, None, 1)
    sigma = math.sqrt(sum((each - value) ** 2 for each in known) / (n - 1))
    return Mean(value, sigma / math.sqrt(n), n)


def cells(points: Points) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Each line of the table: its levels, and the rows of its seeds, in the order of the study."""
    for identity, rows in points.done.groupby(points.identity, sort=False, dropna=False):
        values = identity if isinstance(identity, tuple) else (identity,)
        yield dict(zip(points.identity, values, strict=True)), rows


def findings(points: Points, measure: str, baseline: Mapping[str, str]) -> list[str]:
    """What can be said of the measure, in sentences."""
    if measure not in points.rows.columns or points.done.empty:
        return ["Nothing has ended yet that could be compared."]
    groups = [
        (levels, [float(value) for value in _within(rows, measure)[measure].dropna()]) for levels, rows in cells(points)
    ]
    groups = [(levels, values) for levels, values in groups if values]
    missed = len(points.done) - len(_within(points.done, measure))
    left_out = [f"{missed} points over their budgets are left out of the comparison."] if missed else []
    return [*_compared(groups, measure, baseline), *left_out]


def _within(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """An accuracy is compared at equal cost: those over their budgets would win by what they did not give up."""
    if "accuracy" not in measure or "fits" not in rows:
        return rows
    return rows[rows["fits"].astype(bool)]


def _compared(
    groups: Sequence[tuple[dict[str, str], list[float]]], measure: str, baseline: Mapping[str, str]
) -> list[str]:
    seeds = min((len(values) for _, values in groups), default=0)
    if len(groups) < 2:
        return ["There is one group only: nothing to compare."]
    name = measure.replace("_", " ")
    if seeds < 2:
        return [f"One seed in at least one group: nothing can be said of the significance of differences in {name}."]
    if baseline:
        return _against(groups, measure, baseline)
    return [_at_all(groups, measure)]


def _against(
    groups: Sequence[tuple[dict[str, str], list[float]]], measure: str, baseline: Mapping[str, str]
) -> list[str]:
    def rest(levels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple((factor, level) for factor, level in levels.items() if factor not in baseline)

    bases = {rest(levels): values for levels, values in groups if all(levels[key] == baseline[key] for key in baseline)}
    pairs = [
        (levels, values, bases[rest(levels)])
        for levels, values in groups
        if rest(levels) in bases and any(levels[key] != baseline[key] for key in baseline)
    ]
    values_of_p = holm([_welch(base, values) for _, values, base in pairs])
    than = " ".join(baseline.values())
    return [
        _sentence(levels, baseline, than, measure, values, base, p)
        for (levels, values, base), p in zip(pairs, values_of_p, strict=True)
    ]


def _sentence(
    levels: Mapping[str, str],
    baseline: Mapping[str, str],
    than: str,
    measure: str,
    values: Sequence[float],
    base: Sequence[float],
    p: float,
) -> str:
    this = " ".join(levels[key] for key in baseline)
    where = ", ".join(f"{key} {level}" for key, level in levels.items() if key not in baseline)
    mine, theirs = mean_of(values), mean_of(base)
    assert mine is not None and theirs is not None
    gap = _amount(mine.value - theirs.value, measure)
    verdict = "significant" if p < SIGNIFICANT else "not significant: as much is well explained by chance"
    how = f"Welch's test, {len(values)} and {len(base)} seeds, p = {p:.2g} after Holm's correction"
    which = f"{this} ({where})" if where else this
    return f"{which}: {gap} against {than} in {measure.replace('_', ' ')}; {verdict} ({how})."


def _at_all(groups: Sequence[tuple[dict[str, str], list[float]]], measure: str) -> str:
    p = anova_p([values for _, values in groups])
    means = sorted((sum(values) / len(values), " ".join(levels.values())) for levels, values in groups)
    (low, worst), (high, best) = means[0], means[-1]
    spread = _amount(high - low, measure)
    told = "more than chance" if p < SIGNIFICANT else "no more than chance would give"
    return (
        f"Over {len(groups)} cells {measure.replace('_', ' ')} differs by {spread} between the worst ({worst}) and the "
        f"best ({best}); all in all the cells differ by {told} (analysis of variance, p = {p:.2g})."
    )


def _amount(difference: float, measure: str) -> str:
    return f"{100 * difference:+.2f} points" if "accuracy" in measure else f"{difference:+,.4g}"


def _welch(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = mean_of(a), mean_of(b)
    assert mean_a is not None and mean_b is not None and mean_a.error is not None and mean_b.error is not None
    root_a, root_b = math.sqrt(mean_a.n), math.sqrt(mean_b.n)
    return welch_p(mean_a.value, mean_a.error * root_a, mean_a.n, mean_b.value, mean_b.error * root_b, mean_b.n)
