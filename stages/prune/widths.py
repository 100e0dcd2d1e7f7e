"""Whole widths from width multipliers: what a group keeps at least, and the multiples it is rounded to."""

from __future__ import annotations

import numpy as np

from stages.nets.channels import Channels
from stages.prune.config import PruneConfig
from stages.prune.objectives import Objectives


class WidthRule:
    """Channels per group for given multipliers."""

    def __init__(self, channels: Channels, config: PruneConfig) -> None:
        multiple = config.channel_multiple
        self.full = np.array(channels.widths, dtype=float)
        self.floor = np.minimum(np.ceil(config.min_channels / multiple) * multiple, self.full)
        self.multiple = multiple

    @property
    def smallest(self) -> tuple[int, ...]:
        """Every group at its floor: no pruning goes below."""
        return tuple(int(width) for width in self.floor)

    def whole(self, multipliers: np.ndarray) -> tuple[int, ...]:
        """Rounded down (paper) to the multiple; a group that was never pruned keeps all its channels."""
        # The small addend keeps exp(log(k / C)) * C from falling to k - 1.
        kept = np.floor((multipliers * self.full + 1e-6) / self.multiple) * self.multiple
        kept = np.where(multipliers >= 1, self.full, np.maximum(kept, self.floor))
        return tuple(int(width) for width in kept)

    def uniform(self, share: float) -> tuple[int, ...]:
        """All groups scaled alike."""
        return self.whole(np.full(len(self.full), share))


def uniform_widths(rule: WidthRule, objectives: Objectives) -> tuple[int, ...]:
    """The widest network that meets all budgets with every layer scaled alike; the narrowest one has to meet them."""
    # Between two of these shares no width changes; all resources grow with the widths, so a bisection finds the last.
    shares = np.unique(np.concatenate([np.arange(1, width + 1) / width for width in np.unique(rule.full)]))
    fits, too_wide = 0, len(shares)
    while too_wide - fits > 1:
        middle = (fits + too_wide) // 2
        if objectives.exceeded(rule.uniform(shares[middle])):
            too_wide = middle
        else:
            fits = middle
    return rule.uniform(shares[fits])
