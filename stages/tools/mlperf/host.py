"""Our own host for MLPerf Tiny's protocol, where the original runner is not at hand: the same blocks, logged alike.

Five windows of at least ten seconds by the device's own clock, every input once for accuracy, five windows between
pulses for energy. Unlike the original it checks that inputs arrived, and repeats what did not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hil.link import replies
from hil.link.audio import AudioLink
from hil.link.device_link import DeviceLink
from pipeline.errors import StageError
from pipeline.stage import Progress
from stages.tools.mlperf.inputs import Example, Stream
from stages.tools.mlperf.scoring import Detections, detections
from stages.tools.mlperf.tasks import WINDOWS, Task

WARMUPS = 1
_MARGIN = 1.02  # above the shortest window: the first estimate is of few inferences
_TRIAL_INFERENCES = 3
_CHUNK_S = 1.0


@dataclass(frozen=True)
class Identity:
    """What the device says of itself."""

    name: str
    model: str
    build_id: str

    @property
    def is_virtual(self) -> bool:
        return self.name.startswith("virtual")


@dataclass(frozen=True)
class Window:
    """One block of inferences."""

    file: str
    label: int
    inferences: int
    start_us: int
    end_us: int
    results: tuple[float, ...]

    @property
    def elapsed_s(self) -> float:
        return (self.end_us - self.start_us) / 1e6

    @property
    def throughput(self) -> float:
        return self.inferences / self.elapsed_s


@dataclass(frozen=True)
class Scored:
    """One file of the accuracy run: the mean of its windows' results."""

    file: str
    label: int
    results: tuple[float, ...]


@dataclass(frozen=True)
class Heard:
    """One recording of the streaming run."""

    file: str
    seconds: float
    times_s: tuple[float, ...]
    counted: Detections
    busy_s: float  # on a twin: of instructions, as if each took a cycle
    runs: int  # of the network

    @property
    def duty_cycle(self) -> float:
        return self.busy_s / self.seconds


@dataclass
class Host:
    """A link that is in sync, and a log."""

    link: DeviceLink
    task: Task
    log: list[str] = field(default_factory=list)

    def identify(self) -> Identity:
        """Refuses a device that runs another task."""
        name = self.link.query("name", lambda lines: replies.single(lines, r"m-name-dut-\[([^]]+)\]")[1])
        model = self.link.query("profile", lambda lines: replies.single(lines[-1:], r"m-model-\[([^]]+)\]")[1])
        found = Identity(name, model, self.link.build_id())
        self.log += [f"Device name retrieved: {name}", f"Device model retrieved: {model}", f"Build: {found.build_id}"]
        if model != self.task.model:
            raise StageError(f"{self.link.name}: runs {model}, needed {self.task.model}; force the flash step")
        return found

    def performance(self, examples: Sequence[Example], window_s: float, progress: Progress) -> tuple[Window, ...]:
        """Five windows; one that came out too short is repeated with more inferences, and so are those before it."""
        self.link.load(examples[0].windows[0])
        trial = self.link.infer(_TRIAL_INFERENCES, 1)
        inferences = _enough(_TRIAL_INFERENCES, trial.elapsed_us, window_s)
        progress.start(WINDOWS, "window")
        while True:
            windows: list[Window] = []
            while len(windows) < WINDOWS:
                example = examples[len(windows) % len(examples)]
                windows.append(self._window(example, inferences, len(windows) + 1))
                if windows[-1].elapsed_s < window_s:
                    inferences = _enough(inferences, round(windows[-1].elapsed_s * 1e6), window_s)
                    break
                progress.advance()
            else:
                return tuple(windows)

    def _window(self, example: Example, inferences: int, number: int) -> Window:
        self.log.append(f"ulp-mlperf: Loading file {example.file} segment 0")
        block = self.link.on_input(example.windows[0], lambda: self.link.infer(inferences, WARMUPS))
        assert block.start_us is not None and block.end_us is not None
        window = Window(example.file, example.label, inferences, block.start_us, block.end_us, block.results)
        self.log += [
            f"ulp-mlperf: Performance results for window {number}:",
            f"ulp-mlperf:   # Inferences : {inferences:>13}",
            f"ulp-mlperf:   Runtime      : {window.elapsed_s:>10.3f} sec.",
            f"ulp-mlperf:   Throughput   : {window.throughput:>10.3f} inf./sec.",
            f"ulp-mlperf:   m-results    : {list(block.results)}",
        ]
        return window

    def accuracy(self, examples: Sequence[Example], progress: Progress) -> tuple[Scored, ...]:
        """Every window of every file, once."""
        progress.start(len(examples), "input")
        found = []
        for example in examples:
            self.log.append(f"ulp-mlperf: Loading file {example.file}, {len(example.windows)} segments")
            rows = [self.link.on_input(one, lambda: self.link.infer(1, 0).results) for one in example.windows]
            found.append(Scored(example.file, example.label, tuple(float(mean) for mean in np.mean(rows, axis=0))))
            self.log.append(f"ulp-mlperf:   m-results    : {list(found[-1].results)}")
            progress.advance()
        return tuple(found)

    def stream(
        self, streams: Sequence[Stream], hop_s: float, window_s: float, run_hops: int, clock_hz: int, progress: Progress
    ) -> tuple[Heard, ...]:
        """Each recording from `start` to `stop`; audio goes over the serial line, at its own pace."""
        found = []
        for stream in streams:
            chunk = round(_CHUNK_S * 16_000)
            progress.start(-(-len(stream.samples) // chunk), "second")
            words, ticks = AudioLink(self.link).wake_word_run(
                stream.samples.astype("<i2").tobytes(), 2 * chunk, progress.advance
            )
            times = tuple(window_s + (word.hop - 1) * hop_s for word in words)
            seconds = len(stream.samples) / 16_000
            counted = detections(times, stream.words_s)
            found.append(Heard(stream.file, seconds, times, counted, ticks / clock_hz, int(seconds / hop_s / run_hops)))
            self.log += [
                f"Playing {stream.file} (length = {seconds}s)",
                f"{[round(1e3 * time) for time in times]}",
                f"Duty cycle = {found[-1].duty_cycle:.3f}, Period = {1e3 * hop_s * run_hops:.1f} ms",
            ]
        return tuple(found)


def _enough(inferences: int, elapsed_us: int, window_s: float) -> int:
    """So many that a window is long enough."""
    return max(inferences + 1, math.ceil(_MARGIN * window_s * 1e6 * inferences / max(1, elapsed_us)))
