"""The supply of a twin: a simulated N6705 on TCP, behind the real driver, whose power follows what the twin executes.

The twin counts instructions for each op of each inference; the cycle model's cycles per instruction and the board's
clock turn them into time, and the board's typical power into watts. Nobody has measured a board's idle power here: it
is assumed to be half of that of an inference, so that idle time shows in a trace at all. Arming, the trigger, binary
blocks, the pin's edges and the uncertainty are those of a real bench; what comes out is modelled power all the same,
and must be labelled so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hil.instruments.n6705 import N6705, N6705Wiring
from hil.instruments.scpi import ScpiSession
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiServer
from hil.instruments.simulated.timeline import Board, Fault, Timeline

IDLE_SHARE_ASSUMED = 0.5
NOISE_A = 1e-3  # of one sample, about that of the instrument's 3 A range
_IDLE_S = 0.1
_START = Timeline.steps([(1.0, 0.0)])


@dataclass(frozen=True)
class TwinPower:
    """What turns executed instructions into a power trace."""

    clock_hz: int
    active_w: float
    cycles_per_instruction: tuple[float, ...]  # by op
    op_w: tuple[float, ...] = ()  # by op, where they differ
    idle_w: float | None = None  # None: the assumed share of an inference's


class TwinSupply:
    """`executed` tells it what the twin has just run; the meter shows that."""

    def __init__(self, power: TwinPower, board: Board) -> None:
        self._power, self._board = power, board

    def executed(self, op_instructions: Sequence[int], times: int, windows: int = 1) -> None:
        """`windows` times: `times` inferences of so many instructions by op, between two edges."""
        per_instruction = self._power.cycles_per_instruction
        watts = self._power.op_w or (self._power.active_w,) * len(per_instruction)
        run = [
            (ticks * cycles / self._power.clock_hz, watt)
            for ticks, cycles, watt in zip(op_instructions, per_instruction, watts, strict=True)
            if ticks * cycles > 0
        ]
        told_w = self._power.idle_w
        idle_w = IDLE_SHARE_ASSUMED * self._power.active_w if told_w is None else told_w
        self._board.timeline = Timeline.of_runs(run * times, runs=windows, idle_s=_IDLE_S, idle_w=idle_w)
        self._board.seed += 1  # every capture has noise of its own


@contextmanager
def virtual_meter(board: Board) -> Iterator[N6705]:
    """An open instrument that sees this board and its timestamp pin."""
    with ScpiServer(SimulatedN6705(board)) as server:
        wiring = N6705Wiring(edge_channel=2, max_current_a=3.0)
        with N6705(ScpiSession(server.resource), wiring) as meter:
            yield meter


@contextmanager
def twin_meter(power: TwinPower, faults: Sequence[Fault] = ()) -> Iterator[tuple[N6705, TwinSupply]]:
    """An open instrument, and what tells it what the twin does."""
    board = Board(_START, noise_a=NOISE_A, faults=list(faults))
    with virtual_meter(board) as meter:
        yield meter, TwinSupply(power, board)
