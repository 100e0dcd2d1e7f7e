"""Measurement rounds with injected faults: every one must end with a right result or a clear error, in time.

    python -m tests.benchmarks.fault_rounds --rounds 1000 --seed 1 [--jobs 4]

A round is what the measure step does with an attached board: it takes the board's lock, opens the link, asks for build
id, clock and memory, times inferences, takes the ticks of every op and the output of golden inputs; some rounds measure
energy as well. The "board" is a real twin in QEMU behind a line that drops, flips, tears, delays or breaks; sometimes
it is reset amid an inference, or QEMU is killed; sometimes the instrument overruns, or another job holds the board.
Limits are a tenth of those of the real link, and so are silences (0.3 s stand for 3 s), except in the rounds
"silence 3 s", which have the real ones but for the time of an inference. `--jobs` shares the rounds among processes,
each with a bench and a seed of its own.

After each round: no wrong number was reported, the limit was kept, the lock is free, no process is left.
`struck` counts the rounds in which the fault did happen; "reset" only if it cut an inference short. On a busy machine,
where the twin itself needs longer than such limits, `--slack 3` makes them all three times as long.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from boards import load_board
from hil.bench.discovery import AttachedBoard
from hil.bench.locks import board_lock
from hil.fakes.faulty_line import FaultKind, FaultyLine, LineFault
from hil.instruments.energy_run import plan_windows, record_windows
from hil.instruments.simulated.timeline import Fault
from hil.instruments.simulated.twin_supply import TwinPower, twin_meter
from hil.link.device_link import Limits
from hil.virtual.twin import Twin
from pipeline.errors import HardwareError, PipelineError
from pipeline.stage import Target, read_json
from stages.firmware.config import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.writer import write_tflite
from stages.measure.golden import Golden
from stages.measure.seen import Seen
from stages.measure.session import BoardAccess, measure_device, open_link
from tests.stages.measure.conftest import SIDE, small_network

BOARD = "nucleo_f767zi"
SERIAL = "FAULTROUNDS"
RUNS, INPUTS = 2, 2
LIMITS = Limits(reply_s=0.25, infer_s=0.5, sync_s=2.0, sync_attempt_s=0.25)
REAL_LIMITS = Limits(infer_s=4.0)
ROUND_S = 20.0  # a round's own limit
KINDS = (
    *("none", "drop", "flip", "tear", "silence", "silence 3 s", "hold", "cut", "vanish for good"),
    *("reset", "kill", "many flips", "overrun", "instrument", "two jobs"),
)
WEIGHTS = (2, 5, 5, 4, 2, 1, 2, 3, 1, 3, 1, 3, 1, 1, 2)
INSTRUMENT_FAULTS: tuple[Fault, ...] = ("lost", "over_range")
RESET_WARMUPS = 2000  # so long that most resets come amid an inference
KILLED_AFTER = (b"", b"m-build", b"m-load-done", b"m-infer-start", b"m-layer", b"m-output", b"m-memory")
CUT_SHORT = re.compile(rb"m-warmup-start-\d+\r\n(?:(?!m-infer-done)[^\n]*\n)*?m-timestamp-mode-")
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

    def kill(self) -> None:
        os.kill(self.pid or 0, signal.SIGKILL)

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

    def __init__(self, folder: Path, slack: float = 1.0) -> None:
        self.slack = slack
        self.limits = Limits(**{name: slack * seconds for name, seconds in asdict(LIMITS).items()})
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

    def measure(
        self,
        line: FaultyLine,
        *,
        wait_s: float = 0.0,
        meter_faults: Sequence[Fault] | None = None,
        warmups: int = 1,
        limits: Limits | None = None,
    ) -> Result:
        """What the measure step does with an attached board."""
        attached = [AttachedBoard(BOARD, SERIAL, line.url)]
        access = BoardAccess(wait_s=wait_s, lock_folder=self.locks, devices=attached, limits=limits or self.limits)
        with open_link(Target(BOARD, "hardware"), self.board, {"probe_serial": SERIAL}, self.image, access) as device:
            seen = measure_device(device, self.golden, self.ops, self.build_id, RUNS, warmups, Quiet())
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
    words: dict[str, str] = field(default_factory=dict)  # of an error of each kind, the last one
    wrong: list[str] = field(default_factory=list)
    slowest_s: dict[str, float] = field(default_factory=dict)


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
    if kind == "silence 3 s":
        return [fault("silence", 3.0)]
    return [fault("cut", {"cut": 0.1, "vanish for good": 60.0}[kind])] if kind in ("cut", "vanish for good") else []


class Strike:
    """Something that happens to the twin a while after the line has heard a word; whether it has."""

    def __init__(self, act: Callable[[], None], line: FaultyLine, word: bytes, after_s: float) -> None:
        self._act, self._line, self._word, self._after_s = act, line, word, after_s
        self.done, self._ended = False, threading.Event()
        self._thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        while self._word not in self._line.heard:
            if self._ended.wait(0.001):
                return
        if not self._ended.wait(self._after_s):
            self._act()
            self.done = True

    def __enter__(self) -> Strike:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._ended.set()
        self._thread.join()


def one_round(bench: Bench, kind: str, rng: random.Random) -> tuple[Result | None, str, bool]:
    """The result or the error's words, and whether the fault has struck."""
    device = bench.running()
    with FaultyLine(("127.0.0.1", device.twin.console_port)) as line, ExitStack() as stack:
        line.plan(*planned(kind, rng))
        faults: list[Fault] = []
        if kind in ("overrun", "instrument"):
            known: tuple[Fault, ...] = ("overrun",) if kind == "overrun" else INSTRUMENT_FAULTS
            faults = [rng.choice(known) for _ in range(rng.choice((1, 1, 2, 3, 4)))]
        strike = None
        if kind == "reset":
            strike = Strike(device.twin.press_reset, line, b"m-warmup-start-%d" % RESET_WARMUPS, rng.uniform(0.0, 0.03))
        elif kind == "kill":
            strike = Strike(device.kill, line, rng.choice(KILLED_AFTER), rng.uniform(0.0, 0.03))
        if strike is not None:
            stack.enter_context(strike)
        try:
            result, words = _measured(bench, kind, line, faults, rng), ""
        except HardwareError as error:
            result, words = None, str(error)
        if kind == "reset":
            return result, words, CUT_SHORT.search(line.heard) is not None
        if strike is not None:
            return result, words, strike.done
        return result, words, bool(line.struck or faults or kind in ("none", "two jobs"))


def _measured(bench: Bench, kind: str, line: FaultyLine, faults: Sequence[Fault], rng: random.Random) -> Result:
    if kind == "two jobs":
        return two_jobs(bench, line, rng.choice((0.0, 5.0)))
    if kind == "silence 3 s":
        return bench.measure(line, limits=REAL_LIMITS)
    return bench.measure(line, meter_faults=faults or None, warmups=RESET_WARMUPS if kind == "reset" else 1)


def two_jobs(bench: Bench, line: FaultyLine, wait_s: float) -> Result:
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
        return bench.measure(line, wait_s=wait_s)
    finally:
        let_go.set()
        thread.join()


def run_rounds(bench: Bench, rounds: int, seed: int, tell: Callable[[str], None]) -> Tally:
    """All rounds; whatever is not as it must be is in `Tally.wrong`."""
    with FaultyLine(("127.0.0.1", bench.running().twin.console_port)) as line:
        truth = bench.measure(line, meter_faults=(), limits=REAL_LIMITS)
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
        tally.slowest_s[kind] = max(tally.slowest_s.get(kind, 0.0), elapsed_s)
        tally.struck[kind] += struck
        if error:
            tally.words[kind] = error
        (tally.errors if result is None else tally.right)[kind] += 1
        found = [] if result is None else complaints(truth, result)
        if elapsed_s > ROUND_S * bench.slack:
            found.append(f"took {elapsed_s:.1f} s, limit {ROUND_S * bench.slack:g} s")
        found += left_behind(bench)
        tally.wrong += [f"round {number} ({kind}): {one}" for one in found]
        if number % 50 == 49:
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


def share(rounds: int, seed: int, slack: float) -> Tally:
    """The rounds of one process, on a bench of its own."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), slack)
        try:
            return run_rounds(bench, rounds, seed, lambda text: print(f"seed {seed}: {text}", flush=True))  # noqa: T201
        finally:
            bench.close()


def added(tallies: Sequence[Tally]) -> Tally:
    """All of them as one."""
    whole = Tally()
    for tally in tallies:
        whole.right += tally.right
        whole.errors += tally.errors
        whole.struck += tally.struck
        whole.words |= tally.words
        whole.wrong += tally.wrong
        for kind, seconds in tally.slowest_s.items():
            whole.slowest_s[kind] = max(whole.slowest_s.get(kind, 0.0), seconds)
    return whole


def table(tally: Tally) -> list[str]:
    """Rounds by kind of fault and outcome."""
    lines = [f"{'fault':<16} {'rounds':>6} {'struck':>6} {'right':>6} {'errors':>6} {'slowest':>9}"]
    for kind in KINDS:
        right, errors, slowest = tally.right[kind], tally.errors[kind], tally.slowest_s.get(kind, 0.0)
        struck = tally.struck[kind]
        lines.append(f"{kind:<16} {right + errors:>6} {struck:>6} {right:>6} {errors:>6} {slowest:>7.1f} s")
    struck, right, errors = tally.struck.total(), tally.right.total(), tally.errors.total()
    lines.append(f"{'all':<16} {right + errors:>6} {struck:>6} {right:>6} {errors:>6}")
    return lines + [f"{kind}: {words.splitlines()[0]}" for kind, words in tally.words.items()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--slack", type=float, default=1.0)
    given = parser.parse_args()
    begin = time.monotonic()
    shares = [given.rounds // given.jobs + (job < given.rounds % given.jobs) for job in range(given.jobs)]
    seeds = range(given.seed, given.seed + given.jobs)
    if given.jobs == 1:
        tally = share(given.rounds, given.seed, given.slack)
    else:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            tally = added(list(pool.map(share, shares, seeds, [given.slack] * given.jobs)))
    lines = [*table(tally), f"{given.rounds} rounds in {time.monotonic() - begin:.0f} s, {given.jobs} at a time"]
    lines += tally.wrong or ["no wrong number, no limit exceeded, no process or lock left behind"]
    print("\n".join(lines))  # noqa: T201
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
