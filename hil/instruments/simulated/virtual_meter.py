"""The instrument of the virtual bench: a simulated N6705 on TCP, the real driver on PyVISA, and a power timeline.

    timeline = Timeline.of_runs([(0.0031, 0.9), ...], runs=5, idle_s=0.02, idle_w=0.3)  # the twin's ops
    report = measured_runs(timeline)

Nothing is shortened: arming, the trigger, binary blocks, the pin's edges and the uncertainty are those of a real bench.
What comes out is modelled power all the same, and must be labelled so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import ceil

from hil.instruments.energy import EnergyReport, edge_windows, measure
from hil.instruments.instrument import Capture
from hil.instruments.n6705 import N6705, SCOPE_SAMPLES, N6705Wiring
from hil.instruments.scpi import ScpiSession
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiServer
from hil.instruments.simulated.timeline import Board, Fault, Timeline
from pipeline.errors import InstrumentError

GRID_S = 20.48e-6  # of the scope's sample interval
_PULSE_S = 200e-6
_SHORTEST_SAMPLES = 20  # between two edges: below that the edges' own uncertainty rules


@contextmanager
def virtual_meter(board: Board) -> Iterator[N6705]:
    """An open instrument that sees this board and its timestamp pin."""
    with ScpiServer(SimulatedN6705(board)) as server:
        wiring = N6705Wiring(edge_channel=2, max_current_a=3.0)
        with N6705(ScpiSession(server.resource), wiring) as meter:
            yield meter


def measured_runs(
    timeline: Timeline,
    *,
    voltage_v: float = 3.3,
    noise_a: float = 0.0,
    seed: int = 0,
    runs_per_window: int = 1,
    faults: Sequence[Fault] = (),
) -> EnergyReport:
    """The energy between the pairs of edges, as the instrument of a virtual bench reports it."""
    interval_s = GRID_S * max(1, ceil(timeline.duration_s / (GRID_S * SCOPE_SAMPLES)))
    shortest_s = min((later - earlier for earlier, later in pairwise(timeline.edges_s)), default=0.0)
    if shortest_s < _SHORTEST_SAMPLES * interval_s:
        raise InstrumentError(
            f"virtual meter: {shortest_s:g} s between two edges are {shortest_s / interval_s:.1f} samples,"
            f" needed {_SHORTEST_SAMPLES}; put more inferences between them, or fewer runs into one capture"
        )
    pulse_s = min(max(_PULSE_S, 3 * interval_s), shortest_s / 2)
    board = Board(timeline, voltage_v=voltage_v, noise_a=noise_a, pulse_s=pulse_s, seed=seed, faults=list(faults))
    with virtual_meter(board) as meter:
        meter.arm(Capture(timeline.duration_s, interval_s))
        meter.trigger()
        trace = meter.read()
    windows = edge_windows(trace, len(timeline.edges_s) // 2)
    return measure(trace, windows, runs_per_window=runs_per_window)
