"""The pace of pruning: how large the updates of the widths are, and how often, so that the budgets hold in good time.

How many updates a training has room for is known before it starts, and how many the widths need at least, too: without
the task's resistance the way down depends on the resource model alone, so it is simply walked. The usual pace is kept
wherever it fits. Where it does not, the interval becomes shorter, then the steps larger, until pruning is done by the
middle of the training; what was given is never changed. A training that is too short for any pace is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.errors import ConfigError
from stages.prune.config import PruneConfig
from stages.prune.width_update import WidthUpdate

RATES = (4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
INTERVALS = (20, 16, 12, 10, 8, 6, 5, 4)
SHORTEST = (3, 2, 1)  # intervals that leave the weights little time to recover: only where nothing else helps
RESISTANCE = 1.3  # updates with a task loss that resists, over those without: 1.1 measured by initial_losses
KEPT_UNTIL = 0.75  # of the training: a usual pace that is done by then stays
WANTED_BY = 0.5


def scheduled(
    pruning: WidthUpdate, given: PruneConfig, may_miss: bool, steps: int, steps_per_epoch: int | None = None
) -> PruneConfig:
    """`given` with a pace for so many steps; ConfigError if none meets the budgets, unless they may be missed."""
    usual = given.with_usual_pace()
    if given.losses == "task":  # how fast the task's own gradients shrink the layers cannot be known
        return usual
    needed: dict[float, int] = {}

    def moves(pace: PruneConfig) -> int:
        assert pace.rate is not None
        if pace.rate not in needed:
            needed[pace.rate] = pruning.moves_needed(steps + 1, pace.rate)
        return needed[pace.rate]

    def is_done_by(pace: PruneConfig, share: float) -> bool:
        return _end(pace, round(RESISTANCE * moves(pace)) + pace.settle_updates) <= share * steps

    if moves(usual) == 0 or is_done_by(usual, KEPT_UNTIL):
        return usual
    paces = list(_paces(given, steps))
    for pace in paces:
        if is_done_by(pace, WANTED_BY):
            return pace
    for pace in (usual, *paces):
        if moves(pace) <= room(pace, steps):
            return pace
    if may_miss:
        return usual
    raise _too_short(paces[-1], moves(paces[-1]), steps, steps_per_epoch)


def room(pace: PruneConfig, steps: int, done: int = 0) -> int:
    """Updates that a training of so many steps has left when `done` steps are behind it."""
    assert pace.update_every is not None and pace.start_step is not None
    passed = max(pace.start_step - 1, done, 0)
    return max(0, steps // pace.update_every - passed // pace.update_every)


def _end(pace: PruneConfig, updates: int) -> int:
    """The step of the last of so many updates."""
    assert pace.update_every is not None and pace.start_step is not None
    first = -(-max(pace.start_step, 1) // pace.update_every)
    return (first + updates - 1) * pace.update_every


def _paces(given: PruneConfig, steps: int) -> Iterator[PruneConfig]:
    """What may be tried in place of the usual pace, the gentlest first."""
    start = given.start_step if given.start_step is not None else min(40, steps // 10)
    for intervals in (INTERVALS, SHORTEST):
        for rate in (given.rate,) if given.rate is not None else RATES:
            for interval in (given.update_every,) if given.update_every is not None else intervals:
                yield given.model_copy(update={"rate": rate, "update_every": interval, "start_step": start})


def _too_short(pace: PruneConfig, moves: int, steps: int, steps_per_epoch: int | None) -> ConfigError:
    key, length = ("steps", steps) if steps_per_epoch is None else ("prune.epochs", steps // steps_per_epoch)
    needed, way_out = f"more than {steps}", f"raise {key} (now {length})"
    if moves <= steps:  # else it was not counted to the end
        needed, least = f"{moves}", -(-_end(pace, moves) // (steps_per_epoch or 1))
        way_out += f" to at least {least}"
    return ConfigError(
        f"prune: {steps} training steps have room for {room(pace, steps)} updates of the widths (one in "
        f"{pace.update_every} from step {pace.start_step} on, rate {pace.rate:g}), the budgets need {needed}; "
        f"{way_out}, or leave prune.rate, prune.update_every and prune.start_step out: they are then chosen to fit"
    )
