"""What a core takes while it executes a profiled op -> joules; the rates are fitted by `pipeline calibrate`.

Three rates tell apart what differs most: a core that issues instructions, its multiplier beside that, and a core that
waits while a cache line comes. A board that was not calibrated has one figure for all of it (board.yaml).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hil.virtual.profiler import OpProfile

RATES = ("core_w", "multiply_w", "line_w")


class PowerRates(Protocol):
    """Watts: while executing, more of it when the multiplier works in every cycle, while waiting for lines."""

    @property
    def core_w(self) -> float: ...
    @property
    def multiply_w(self) -> float: ...
    @property
    def line_w(self) -> float: ...


def cycle_kinds(ops: Sequence[OpProfile]) -> np.ndarray:
    """Cycles of all these ops in the order of RATES: executing, multiplying, waiting for lines."""
    kinds = [(op.cycles_zero_wait, op.multiplies, op.cycles_modelled - op.cycles_zero_wait) for op in ops]
    return np.asarray(np.sum(np.array(kinds, float).reshape(-1, len(RATES)), axis=0))


def energy_j(ops: Sequence[OpProfile], rates: PowerRates, clock_hz: int) -> float:
    watts = np.array([getattr(rates, name) for name in RATES])
    return float(cycle_kinds(ops) @ watts) / clock_hz


def mean_power_w(ops: Sequence[OpProfile], rates: PowerRates | None, otherwise_w: float) -> float:
    """Over the modelled time of these ops."""
    cycles = sum(op.cycles_modelled for op in ops)
    return otherwise_w if rates is None or not cycles else energy_j(ops, rates, 1) / cycles
