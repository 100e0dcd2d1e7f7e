"""What is left of the budgets when they hold goes back to the network, channel by channel.

Where it helps most: per share of the budgets that channels cost, by P_TSK's slope. The firmware's costs are stairs: a
channel above a whole block of four costs nearly what four do, so a group that pruning left there gives it up where
whole blocks elsewhere are worth more. The quick cost, set right by the exact one where it stands, says how far to go;
the exact one has the last word. In the end no group can be widened without breaking a budget (`on_the_edge`).
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
    # The slope holds where it was found; further channels help ever less: taken as if a loss fell as 1 / width.
    gain = np.maximum(gain, 1e-3 * gain.max()) * np.array(widths) ** 2
    assert not objectives.exceeded(widths, exactly=True)
    found = _in_whole_blocks(rule, objectives, tuple(widths), gain)
    while True:  # every turn makes it wider
        further = _as_far_as_it_seems(rule, objectives, found, gain)
        while further and objectives.exceeded(further[-1], exactly=True):
            further = further[: len(further) // 2]
        if further:
            found = further[-1]
            continue
        open_groups = _open_groups(rule, objectives, found)
        if not open_groups:
            return found
        for group in sorted(open_groups, key=lambda group: -gain[group] / found[group] ** 2):
            trials = (_with(found, group, width) for width in open_groups[group] if width > found[group])
            found = next((trial for trial in trials if not objectives.exceeded(trial, exactly=True)), found)


def on_the_edge(rule: WidthRule, objectives: Objectives, widths: Sequence[int]) -> bool:
    """Whether no group can be widened without breaking a budget."""
    return not _open_groups(rule, objectives, tuple(widths))


def _open_groups(rule: WidthRule, objectives: Objectives, widths: tuple[int, ...]) -> dict[int, list[int]]:
    """Groups that can be widened, by the exact cost, and to what."""
    steps = {group: _next(rule, objectives, widths, group) for group in range(len(widths))}
    objectives.prepare(_with(widths, group, width) for group, wider in steps.items() for width in wider)
    held = {
        group: [w for w in wider if not objectives.exceeded(_with(widths, group, w), exactly=True)]
        for group, wider in steps.items()
    }
    return {group: wider for group, wider in held.items() if wider}


def _in_whole_blocks(
    rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], gain: np.ndarray
) -> tuple[int, ...]:
    """Without the channels above whole blocks, where what they cost buys more; else the widths as they are."""
    whole = np.where(np.array(widths) < rule.full, np.maximum(np.array(widths) // _BLOCK * _BLOCK, rule.floor), widths)
    blocks = tuple(int(width) for width in np.minimum(whole, widths))
    if objectives.device is None or blocks == widths or objectives.exceeded(blocks, exactly=True):
        return widths
    ends = [([start, *_as_far_as_it_seems(rule, objectives, start, gain)])[-1] for start in (widths, blocks)]
    as_is, in_blocks = (-float(gain @ (1 / np.array(end))) for end in ends)
    return blocks if in_blocks > as_is else widths


def _steps(rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], group: int) -> list[int]:
    """The next width of a group, and the next whole block where the firmware costs something."""
    width, full = widths[group], int(rule.full[group])
    if width >= full:
        return []
    following = min(width + rule.multiple, full)
    block = min(-(-following // _BLOCK) * _BLOCK, full)
    return [following] if objectives.device is None or block == following else [following, block]


def _next(rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], group: int) -> list[int]:
    """Of these steps the whole block only where it seems to cost no more: there the stairs go down."""
    steps = _steps(rule, objectives, widths, group)
    if objectives.device is None or len(steps) < 2:
        return steps
    near, far = (objectives.shares(_with(widths, group, width), {}) for width in steps)
    return steps if all(far[name] <= near[name] for name in objectives.device.limits) else steps[:1]


def _with(widths: tuple[int, ...], group: int, width: int) -> tuple[int, ...]:
    return (*widths[:group], width, *widths[group + 1 :])


def _as_far_as_it_seems(
    rule: WidthRule, objectives: Objectives, widths: tuple[int, ...], gain: np.ndarray
) -> list[tuple[int, ...]]:
    """Ever wider networks, all within the budgets by the quick cost as it is corrected here."""
    offsets = objectives.corrections(widths)
    found: list[tuple[int, ...]] = []
    here = widths
    closed: set[tuple[int, int]] = set()  # groups and widths
    while True:
        before = objectives.shares(here, offsets)
        worth: dict[tuple[int, int], float] = {}
        for group in range(len(here)):
            for width in _steps(rule, objectives, here, group):
                if (group, width) in closed:
                    continue
                after = objectives.shares(_with(here, group, width), offsets)
                if max(after.values()) > 1:
                    closed.add((group, width))
                else:
                    cost = sum(max(0.0, after[name] - before[name]) for name in after)
                    worth[group, width] = gain[group] * (1 / here[group] - 1 / width) / (cost + 1e-9)  # free ones first
        if not worth:
            return found
        here = _with(here, *max(worth, key=worth.__getitem__))
        found.append(here)
