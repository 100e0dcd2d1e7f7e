"""What is left of the budgets when they hold goes back to the network, channel by channel.

Where it helps most: per share of the budgets that a channel costs, by P_TSK's slope. The quick cost, set right by the
exact one where it stands, says how far to go; the exact one has the last word. In the end no group can be widened
without breaking a budget: that is what `on_the_edge` checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.prune.objectives import Objectives
from stages.prune.widths import WidthRule

_MOST_ROUNDS = 20  # of going further and asking whether that was too far; two or three are the rule


def given_back(
    rule: WidthRule, objectives: Objectives, widths: Sequence[int], slope: np.ndarray | None
) -> tuple[int, ...]:
    """Wider, within all budgets. `slope`: of P_TSK by every multiplier, None where it is not known."""
    gain = np.maximum(-slope, 0) / rule.full if slope is not None else np.zeros(len(rule.full))
    if not gain.any():
        gain = 1 / rule.full  # each its share of the channels
    gain = np.maximum(gain, 1e-3 * gain.max())
    found = tuple(widths)
    assert not objectives.exceeded(found, exactly=True)
    for _ in range(_MOST_ROUNDS):
        further = _as_far_as_it_seems(rule, objectives, found, gain)
        while further and objectives.exceeded(further[-1], exactly=True):
            further = further[: len(further) // 2]
        if further:
            found = further[-1]
            continue
        edge = _wider(rule, found)
        objectives.prepare(edge.values())
        open_groups = [group for group, trial in edge.items() if not objectives.exceeded(trial, exactly=True)]
        if not open_groups:
            break
        found = edge[max(open_groups, key=lambda group: gain[group])]
    return found


def on_the_edge(rule: WidthRule, objectives: Objectives, widths: Sequence[int]) -> bool:
    """Whether no group can be widened without breaking a budget."""
    edge = _wider(rule, tuple(widths))
    objectives.prepare(edge.values())
    return all(objectives.exceeded(trial, exactly=True) for trial in edge.values())


def _wider(rule: WidthRule, widths: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Every group by one step, where it is not whole."""
    return {
        group: (*widths[:group], min(width + rule.multiple, int(full)), *widths[group + 1 :])
        for group, (width, full) in enumerate(zip(widths, rule.full, strict=True))
        if width < full
    }


def _as_far_as_it_seems(
    rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], gain: np.ndarray
) -> list[tuple[int, ...]]:
    """Ever wider networks, all within the budgets by the quick cost as it is corrected here."""
    offsets = objectives.corrections(widths)
    found: list[tuple[int, ...]] = []
    here = widths
    closed: set[int] = set()
    while True:
        trials = {group: trial for group, trial in _wider(rule, here).items() if group not in closed}
        if not trials:
            return found
        before = objectives.shares(here, offsets)
        prices = {}
        for group, trial in trials.items():
            after = objectives.shares(trial, offsets)
            if max(after.values()) > 1:
                closed.add(group)
            else:
                cost = sum(max(0.0, after[name] - before[name]) for name in after)
                prices[group] = cost + 1e-9  # what costs nothing comes first
        if not prices:
            continue
        best = max(prices, key=lambda group: gain[group] / prices[group])
        here = trials[best]
        found.append(here)
