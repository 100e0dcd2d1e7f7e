"""Whole widths from width multipliers: what a group keeps at least, and the multiples it is rounded to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.errors import ConfigError
from stages.nets.channels import Channels
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.objectives import Objectives

# What lets layers become narrower, the smallest change first.
_LOOSENED = {
    "prune.min_channels": {"min_channels": 1},
    "prune.channel_multiple": {"channel_multiple": 1},
    "prune.channel_multiple and prune.min_channels": {"channel_multiple": 1, "min_channels": 1},
}


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

    def widest_uniform(self, fits: Callable[[tuple[int, ...]], bool]) -> tuple[float, tuple[int, ...]]:
        """The largest share at which a network scaled alike still `fits`, and its widths; the narrowest has to.

        Between two of the shares that are tried no width changes; all resources grow with the widths (but for a step of
        the firmware's stairs), so a bisection finds the last.
        """
        shares = np.unique(np.concatenate([np.arange(1, width + 1) / width for width in np.unique(self.full)]))
        held, too_wide = 0, len(shares)
        while too_wide - held > 1:
            middle = (held + too_wide) // 2
            if fits(self.uniform(shares[middle])):
                held = middle
            else:
                too_wide = middle
        return float(shares[held]), self.uniform(shares[held])


def uniform_widths(rule: WidthRule, objectives: Objectives) -> tuple[int, ...]:
    """The widest network that meets all budgets with every layer scaled alike; the narrowest one has to meet them."""
    return rule.widest_uniform(lambda widths: not objectives.exceeded(widths))[1]


def refuse_unreachable(channels: Channels, config: PruneConfig, budget: BudgetConfig, title: str) -> None:
    """ConfigError for a budget below what the narrowest network needs."""
    objectives = Objectives(channels, config, budget)
    smallest = WidthRule(channels, config).smallest
    for name in objectives.exceeded(smallest, exactly=True):
        unit = _unit(name)
        wanted = objectives.limits[name]
        used = objectives.used_exactly(name, smallest)
        if used is None:
            raise ConfigError(
                f"budget: {title} with {_narrowest(smallest)} does not fit the memory of "
                f"{' or '.join(budget.device_limits)}; choose a board with more memory or a smaller network"
            )
        reachable = f"{_rounded_up(used)}{unit}"
        way_out = f"raise the budget to at least {reachable}"
        for keys, loosened in _LOOSENED.items():
            least = objectives.used_exactly(name, WidthRule(channels, config.model_copy(update=loosened)).smallest)
            if least is not None and wanted >= least:
                way_out += f" or lower {keys} (1 needs {_rounded_up(least)}{unit})"
                break
        raise ConfigError(
            f"budget.{name}: {wanted:.10g}{unit} cannot be met, {title} with {_narrowest(smallest)} "
            f"needs {reachable}; {way_out}"
        )


def _unit(name: str) -> str:
    objective = name.rpartition(".")[2]
    return {"macs": "", "latency_ms": " ms", "energy_mj": " mJ"}.get(objective, " B")


def _rounded_up(value: float) -> str:
    """Three decimals of what is no whole number."""
    return f"{value}" if isinstance(value, int) or value == int(value) else f"{np.ceil(value * 1000) / 1000:.3f}"


def _narrowest(smallest: tuple[int, ...]) -> str:
    if not smallest:
        return "no layer that can be pruned (their channels are the classes, or are tied to the network's input)"
    width = max(smallest)
    return f"{width} channel{'s' if width > 1 else ''} in every layer"
