"""The instrument of the virtual bench: a simulated N6705 on TCP, the real driver on PyVISA, and a power timeline.

Nothing is shortened: arming, the trigger, binary blocks, the pin's edges and the uncertainty are those of a real bench.
What comes out is modelled power all the same, and must be labelled so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hil.instruments.n6705 import N6705, N6705Wiring
from hil.instruments.scpi import ScpiSession
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiServer
from hil.instruments.simulated.timeline import Board


@contextmanager
def virtual_meter(board: Board) -> Iterator[N6705]:
    """An open instrument that sees this board and its timestamp pin."""
    with ScpiServer(SimulatedN6705(board)) as server:
        wiring = N6705Wiring(edge_channel=2, max_current_a=3.0)
        with N6705(ScpiSession(server.resource), wiring) as meter:
            yield meter
