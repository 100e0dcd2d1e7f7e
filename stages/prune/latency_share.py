"""A latency budget in percent -> milliseconds: of what the network takes that just meets the other budgets.

Which one that is depends on training; here it is the one at which resources alone arrive (`losses: resource`), without
any training. So `latency_ms: 60%` beside a budget of MACs asks for what counting MACs does not give.
"""

from __future__ import annotations

from pipeline.errors import ConfigError
from stages.nets.channels import Channels
from stages.nets.config import BoardBudget, BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.device import DeviceCosts
from stages.prune.width_update import WidthUpdate

_MOST_MOVES = 10_000


def with_absolute_latency(channels: Channels, config: PruneConfig, budget: BudgetConfig) -> BudgetConfig:
    """The very same budget where no latency is a share."""
    shares = {board: limits.get("latency_ms", 0.0) for board, limits in budget.device_limits.items()}
    if all(share >= 0 for share in shares.values()):
        return budget
    if not budget.limits:
        raise ConfigError(
            "budget.latency_ms: found a share, needed peak_bytes, size_bytes or macs that it is a share for"
        )
    reached = DeviceCosts(channels, budget).latency_ms(widths_by_resources(channels, config, budget))
    absolute = {b: round(-share * reached[b], 4) if share < 0 else share for b, share in shares.items()}
    own = {} if budget.board is None else {"latency_ms": absolute[budget.board] or None}
    boards = {
        name: given.model_copy(update={"latency_ms": absolute[name] or None}) for name, given in budget.boards.items()
    }
    return budget.model_copy(update={**own, "boards": boards})


def widths_by_resources(channels: Channels, config: PruneConfig, budget: BudgetConfig) -> tuple[int, ...]:
    """Where pruning to the budgets of the paper alone arrives without a task that resists."""
    fields = dict.fromkeys(BoardBudget.model_fields) | {"board": None, "boards": {}}
    pruning = WidthUpdate(channels, config, budget.model_copy(update=fields))
    return pruning.by_resources(_MOST_MOVES)
