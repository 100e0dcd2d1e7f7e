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

_BLOCK = 4  # channels that kernels take at once: a whole block may cost less than a broken one


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
    while True:  # every turn makes it wider
        further = _as_far_as_it_seems(rule, objectives, found, gain)
        while further and objectives.exceeded(further[-1], exactly=True):
            further = further[: len(further) // 2]
        if further:
            found = further[-1]
            continue
        still_open = _open_groups(rule, objectives, found)
        if not still_open:
            return found
        while still_open:  # a step each in turn; one that is closed seldom opens again: the next turn asks all
            for group in sorted(still_open, key=lambda group: -gain[group]):
                trial = _with(found, group, still_open[group])
                if objectives.exceeded(trial, exactly=True):
                    del still_open[group]
                else:
                    found = trial
            still_open = {group: wider[0] for group in still_open if (wider := _wider(rule, objectives, found, group))}


def on_the_edge(rule: WidthRule, objectives: Objectives, widths: Sequence[int]) -> bool:
    """Whether no group can be widened without breaking a budget."""
    return not _open_groups(rule, objectives, tuple(widths))


def _open_groups(rule: WidthRule, objectives: Objectives, widths: tuple[int, ...]) -> dict[int, int]:
    """Groups that can be widened, by the exact cost, and to what."""
    trials = [(group, width) for group in range(len(widths)) for width in _wider(rule, objectives, widths, group)]
    objectives.prepare(_with(widths, *trial) for trial in trials)
    return {
        group: width for group, width in trials if not objectives.exceeded(_with(widths, group, width), exactly=True)
    }


def _wider(rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], group: int) -> list[int]:
    """The next width of a group; the next whole block, too, where that seems to cost no more: there stairs go down."""
    width, full = widths[group], int(rule.full[group])
    following = min(width + rule.multiple, full)
    block = min(-(-following // _BLOCK) * _BLOCK, full)
    if objectives.device is None or block == following or width == full:
        return [following] if width < full else []
    near, far = (objectives.shares(_with(widths, group, each), {}) for each in (following, block))
    return [following, block] if all(far[name] <= near[name] for name in objectives.device.limits) else [following]


def _with(widths: tuple[int, ...], group: int, width: int) -> tuple[int, ...]:
    return (*widths[:group], width, *widths[group + 1 :])


def _as_far_as_it_seems(
    rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], gain: np.ndarray
) -> list[tuple[int, ...]]:
    """Ever wider networks, all within the budgets by the quick cost as it is corrected here."""
    offsets = objectives.corrections(widths)
    found: list[tuple[int, ...]] = []
    here = widths
    closed: set[int] = set()
    while True:
        trials = {
            group: _with(here, group, min(width + rule.multiple, int(full)))
            for group, (width, full) in enumerate(zip(here, rule.full, strict=True))
            if width < full and group not in closed
        }
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
