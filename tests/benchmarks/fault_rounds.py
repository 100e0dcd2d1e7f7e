"""Measurement rounds with injected faults: every one must end with a right result or a clear error, in time.

    python -m tests.benchmarks.fault_rounds --rounds 1000 --seed 1

A round is what the measure step does with an attached board: it takes the board's lock, opens the link, asks for build
id, clock and memory, times inferences, takes the ticks of every op and the output of golden inputs; some rounds measure
energy as well. The "board" is a real twin in QEMU behind a line that drops, flips, tears, delays or breaks; sometimes
it is reset in the midst, or QEMU is killed; sometimes the instrument overruns, or another job holds the board. Limits
are a tenth of those of the real link, and so are silences (0.3 s stand for 3 s).

After each round: no wrong number was reported, the limit was kept, the lock is free, no process is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boards import load_board
from hil.discovery import AttachedBoard
from hil.energy_run import plan_windows, record_windows
from hil.faulty_line import FaultKind, FaultyLine, LineFault
from hil.instruments.simulated.timeline import Fault
from hil.instruments.simulated.twin_supply import TwinPower, twin_meter
from hil.link import Limits
from hil.locks import board_lock
from hil.virtual.twin import Twin
from pipeline.errors import HardwareError, PipelineError
from pipeline.stage import Target, read_json
from stages.firmware.config import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.tflite_writer import write_tflite
from stages.graph.tflm import run_tflm
from stages.measure.golden import Golden
from stages.measure.session import BoardAccess, Seen, measure_device, open_link
from tests.stages.measure.conftest import SIDE, small_network

BOARD = "nucleo_f767zi"
SERIAL = "FAULTROUNDS"
RUNS, INPUTS = 2, 2
LIMITS = Limits(reply_s=0.25, infer_s=0.5, sync_s=2.0, sync_attempt_s=0.25)
ROUND_S = 20.0  # a round's own limit
ROUND_TYPICAL_S = 0.15  # of an undisturbed one
KINDS = (
    *("none", "drop", "flip", "tear", "silence", "hold", "cut", "vanish for good"),
    *("reset", "kill", "many flips", "instrument", "two jobs"),
)
WEIGHTS = (2, 5, 5, 4, 3, 2, 3, 1, 3, 1, 3, 2, 2)
INSTRUMENT_FAULTS: tuple[Fault, ...] = ("overrun", "lost", "over_range")
TRAFFIC_BYTES = {True: 1600, False: 400}  # of an undisturbed round, about: faults strike within it


class Quiet:
    """Nobody looks at the progress of a round."""

    def start(self, total: int, unit: str) -> None: ...
    def advance(self, count: int = 1, note: str = "") -> None: ...


class QemuBoard:
    """A twin that runs on whoever connects; something wakes QEMU now and then, as its sockets need."""

    def __init__(self, image: Path) -> None:
        self.twin = Twin(image)
        self.twin.__enter__()
        self.twin.link.close()
        self.pid = self.twin.pid
        self._stopping = threading.Event()
        self._waker = threading.Thread(target=self._wake, daemon=True)
        self._waker.start()

    def _wake(self) -> None:
        while not self._stopping.wait(0.05):
            self.twin.wake()

    def stop(self) -> None:
        self._stopping.set()
        self._waker.join()
        self.twin.stop()


@dataclass(frozen=True, eq=False)
class Result:
    """What a round has reported."""

    seen: Seen
    energy_j: float | None


class Bench:
    """A twin behind a faulty line, looked at as an attached board."""

    def __init__(self, folder: Path) -> None:
        self.locks, self.board = folder / "locks", load_board(BOARD)
        model, graph = folder / "model.tflite", small_network()
        model.write_bytes(write_tflite(graph, "fault rounds"))
        built = firmware.function(model, None, config=FirmwareConfig(), board=BOARD, out_dir=folder)
        self.image, self.build_id = built.twin, read_json(built.footprint)["build_id"]
        inputs = np.random.default_rng(3).integers(-128, 128, (INPUTS, SIDE, SIDE, 1)).astype(np.int8)
        self.golden, self.ops = Golden(inputs, run_tflm(model.read_bytes(), graph, inputs)), len(graph.ops)
        self.device: QemuBoard | None = None

    def running(self) -> QemuBoard:
        """Started anew where the last round has killed it."""
        if self.device is None or not self.device.twin.is_running():
            self.close()
            self.device = QemuBoard(self.image)
        return self.device

    def close(self) -> None:
        if self.device is not None:
            self.device.stop()
            self.device = None

    def measure(self, line: FaultyLine, wait_s: float = 0.0, meter_faults: Sequence[Fault] | None = None) -> Result:
        """What the measure step does with an attached board."""
        attached = [AttachedBoard(BOARD, SERIAL, line.url)]
        access = BoardAccess(wait_s=wait_s, lock_folder=self.locks, devices=attached, limits=LIMITS)
        with open_link(Target(BOARD, "hardware"), self.board, {"probe_serial": SERIAL}, self.image, access) as device:
            seen = measure_device(device, self.golden, self.ops, self.build_id, RUNS, 1, Quiet())
            if meter_faults is None:
                return Result(seen, None)
            power = TwinPower(self.board.clock_hz, self.board.power_active_w, (1.0,) * self.ops)
            with twin_meter(power, meter_faults) as (meter, supply):
                plan = plan_windows(meter, sum(seen.op_ticks) / self.board.clock_hz, 2)
                ticks = [layer.ticks for layer in device.link.layers()]
                energy = record_windows(meter, plan, lambda windows: supply.executed(ticks, plan.inferences, windows))
            return Result(seen, energy.report.energy_j)


@dataclass
class Tally:
    """What came of the rounds."""

    right: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def complaints(truth: Result, found: Result) -> list[str]:
    """Where a reported number is not the true one."""
    wrong = []
    if not np.array_equal(found.seen.outputs, truth.seen.outputs):
        wrong.append("outputs")
    if found.seen.op_ticks != truth.seen.op_ticks:
        wrong.append(f"op ticks {found.seen.op_ticks} for {truth.seen.op_ticks}")
    wanted_ms = truth.seen.samples[0].latency_ms
    for sample in found.seen.samples:  # the device's clock counts whole microseconds
        if sample.latency_ms is None or wanted_ms is None or abs(sample.latency_ms - wanted_ms) > 0.0021:
            wrong.append(f"latency {sample.latency_ms} ms for {wanted_ms} ms")
    for name in ("clock_hz", "build_id"):
        if getattr(found.seen, name) != getattr(truth.seen, name):
            wrong.append(name)
    if found.seen.memory.arena_bytes != truth.seen.memory.arena_bytes:
        wrong.append("memory")
    if found.energy_j is not None and abs(found.energy_j / (truth.energy_j or 1.0) - 1) > 0.005:
        wrong.append(f"energy {found.energy_j} J for {truth.energy_j} J")
    return wrong


def planned(kind: str, rng: random.Random) -> list[LineFault]:
    """The faults of the line in a round."""

    def fault(name: FaultKind, seconds: float = 0.0) -> LineFault:
        to_host = rng.random() < 0.7
        return LineFault(name, to_host, rng.randrange(TRAFFIC_BYTES[to_host]), seconds, rng.randrange(8))

    if kind in ("drop", "flip", "tear"):
        return [fault(kind) for _ in range(rng.choice((1, 1, 2)))]  # type: ignore[arg-type]
    if kind == "many flips":
        return [fault("flip") for _ in range(rng.randrange(5, 40))]
    if kind in ("silence", "hold"):
        return [fault(kind, 0.3)]  # type: ignore[arg-type]
    return [fault("cut", {"cut": 0.1, "vanish for good": 60.0}[kind])] if kind in ("cut", "vanish for good") else []


def one_round(bench: Bench, kind: str, rng: random.Random) -> tuple[Result | None, str, int]:
    """The result or the error's words, and how many faults have struck."""
    device = bench.running()
    timers = []
    with FaultyLine(("127.0.0.1", device.twin.console_port)) as line:
        line.plan(*planned(kind, rng))
        act = {"reset": device.twin.press_reset, "kill": lambda: os.kill(device.pid or 0, signal.SIGKILL)}.get(kind)
        if act is not None:
            timers = [threading.Timer(rng.uniform(0.0, ROUND_TYPICAL_S), act)]
        struck = len(timers) + (kind == "two jobs")
        meter_faults: list[Fault] | None = None
        if kind == "instrument":
            meter_faults = [rng.choice(INSTRUMENT_FAULTS) for _ in range(rng.choice((0, 1, 2, 3, 4)))]
            struck = len(meter_faults)
        try:
            for timer in timers:
                timer.start()
            if kind == "two jobs":
                return (*two_jobs(bench, line, rng.choice((0.0, 5.0))), struck)
            result = bench.measure(line, meter_faults=meter_faults)
            return result, "", struck + line.struck
        except HardwareError as error:
            return None, str(error), struck + line.struck
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()


def two_jobs(bench: Bench, line: FaultyLine, wait_s: float) -> tuple[Result | None, str]:
    """One job has the board, another one wants it: it waits, or is told who has it."""
    entered, let_go = threading.Event(), threading.Event()

    def first() -> None:
        with board_lock(SERIAL, folder=bench.locks, purpose="the first job"):
            entered.set()
            let_go.wait(0.3)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(5)
    try:
        return bench.measure(line, wait_s), ""
    finally:
        let_go.set()
        thread.join()


def run_rounds(bench: Bench, rounds: int, seed: int, tell: Callable[[str], None]) -> Tally:
    """All rounds; whatever is not as it must be is in `Tally.wrong`."""
    with FaultyLine(("127.0.0.1", bench.running().twin.console_port)) as line:
        truth = bench.measure(line, meter_faults=())
    rng, tally = random.Random(seed), Tally()
    for number in range(rounds):
        kind = rng.choices(KINDS, WEIGHTS)[0]
        begin = time.monotonic()
        try:
            result, error, struck = one_round(bench, kind, rng)
        except PipelineError as unexpected:  # an accusation of the image: outputs or build id that differ
            tally.wrong.append(f"round {number} ({kind}): {unexpected}")
            continue
        elapsed_s = time.monotonic() - begin
        tally.slowest_s = max(tally.slowest_s, elapsed_s)
        tally.struck[kind] += bool(struck)
        (tally.errors if result is None else tally.right)[kind] += 1
        found = [] if result is None else complaints(truth, result)
        if elapsed_s > ROUND_S:
            found.append(f"took {elapsed_s:.1f} s, limit {ROUND_S:g} s")
        found += left_behind(bench)
        tally.wrong += [f"round {number} ({kind}): {one}" for one in found]
        if number % 100 == 99:
            tell(f"{number + 1} rounds, {tally.right.total()} right, {tally.errors.total()} errors, {tally.wrong}")
    return tally


def left_behind(bench: Bench) -> list[str]:
    """Processes and locks that should be gone."""
    found = []
    if board_lock(SERIAL, folder=bench.locks).holder() is not None:
        found.append("the board's lock is still held")
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children += (task / "children").read_text().split()
    own = bench.device.pid if bench.device is not None else None
    found += [f"process {pid} is left" for pid in set(children) if int(pid) != own]
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            tally = run_rounds(bench, given.rounds, given.seed, lambda text: print(text, flush=True))  # noqa: T201
        finally:
            bench.close()
    lines = [f"{'fault':<16} {'rounds':>6} {'struck':>6} {'right':>6} {'errors':>6}"]
    for kind in KINDS:
        right, errors = tally.right[kind], tally.errors[kind]
        lines.append(f"{kind:<16} {right + errors:>6} {tally.struck[kind]:>6} {right:>6} {errors:>6}")
    lines.append(f"{given.rounds} rounds in {time.monotonic() - begin:.0f} s, slowest {tally.slowest_s:.1f} s")
    lines += tally.wrong or ["no wrong number, no limit exceeded, no process or lock left behind"]
    print("\n".join(lines))  # noqa: T201
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
