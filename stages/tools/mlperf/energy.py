"""Energy of a task: five windows of ten seconds by the bench's instrument, or simulated beside a twin.

A twin's windows hold what the cycle model makes of its instructions, at the power of board.yaml: simulated, told so.
A stream's window is the recording: active while the device hears, idle for the rest of each period.
"""

from __future__ import annotations

import math
from pathlib import Path

from boards import Board
from hil.bench.bench_file import load_bench, open_instrument
from hil.bench.locks import instrument_lock
from hil.instruments.energy_run import EnergySeen, WindowPlan, record_windows
from hil.instruments.simulated.timeline import Board as SuppliedBoard
from hil.instruments.simulated.timeline import Timeline
from hil.instruments.simulated.twin_supply import IDLE_SHARE_ASSUMED, NOISE_A, TwinPower, twin_meter, virtual_meter
from hil.link.device_link import DeviceLink
from pipeline.errors import StageError
from stages.measure.modelled import profile_network
from stages.measure.session import OpenLink
from stages.tools.mlperf.tasks import WINDOWS

_MARGIN = 1.02
_IDLE_S = 0.1


def twin_energy(link: DeviceLink, board: Board, twin: Path, sent: bytes, window_s: float) -> EnergySeen:
    """Five windows of a twin that holds this input."""
    profile = profile_network(twin, sent, board)
    if profile is None:
        raise StageError("mlperf: energy of a twin needs the cycle model, and that a C compiler; apt-get install gcc")
    link.load(sent)
    ticks = sum(layer.ticks for layer in link.layers())
    cycles = sum(op.cycles_modelled for op in profile)
    latency_s = cycles / board.clock_hz
    inferences = math.ceil(_MARGIN * window_s / latency_s)
    with twin_meter(TwinPower(board.clock_hz, board.power_active_w, (cycles / ticks,))) as (meter, supply):
        plan = WindowPlan(WINDOWS, inferences, latency_s, 1)
        # The twin's counts do not vary: one inference stands for all those of a window.
        return record_windows(meter, plan, lambda windows: supply.executed([ticks * inferences], 1, windows))


def board_energy(
    device: OpenLink, bench: Path, sent: bytes, latency_s: float, window_s: float, lock_wait_s: float
) -> tuple[EnergySeen, str]:
    """Five windows of a board, and where its current was measured."""
    wired = load_bench(bench) if bench.exists() else None
    wiring = None if wired is None else wired.wiring(device.probe_serial)
    if wired is None or wiring is None:
        raise StageError(f"mlperf: {bench.name} ties no instrument to probe {device.probe_serial}; or give --no-energy")
    inferences = math.ceil(_MARGIN * window_s / latency_s)
    device.link.load(sent)
    plan = WindowPlan(WINDOWS, inferences, latency_s, 1)
    with (
        instrument_lock(wiring.address, timeout_s=lock_wait_s, purpose=f"energy of {device.where}"),
        open_instrument(wired, device.probe_serial) as meter,
    ):

        def fire(windows: int) -> None:
            for _ in range(windows):
                device.link.infer(inferences, 0, 10.0 + 4 * plan.window_s)

        return record_windows(meter, plan, fire), wiring.point


def stream_energy(board: Board, busy_s: float, period_s: float, seconds: float) -> EnergySeen:
    """One window as long as the recording: in every period so much work."""
    idle_w = IDLE_SHARE_ASSUMED * board.power_active_w
    periods = math.floor(seconds / period_s)
    busy = min(busy_s, period_s)
    steps = [(busy, board.power_active_w), (period_s - busy, idle_w)]
    timeline = Timeline.of_runs(
        [step for step in steps if step[0] > 0] * periods, runs=1, idle_s=_IDLE_S, idle_w=idle_w
    )
    with virtual_meter(SuppliedBoard(timeline, noise_a=NOISE_A)) as meter:
        return record_windows(meter, WindowPlan(1, 1, periods * period_s, 1), lambda _: None)
