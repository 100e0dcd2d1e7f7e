"""What `pipeline mlperf` does with an image that runs: the three modes, their pages, the submission folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boards import Board, load_board
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer, Progress, Target, read_json
from stages.graph.tflite.reader import read_tflite
from stages.measure.accuracy import choose_inputs
from stages.measure.input_form import input_form
from stages.measure.modelled import profile_network
from stages.measure.session import BoardAccess, OpenLink, open_link
from stages.tools.mlperf.checker import check as check_folder
from stages.tools.mlperf.energy import board_energy, stream_energy, twin_energy
from stages.tools.mlperf.host import Heard, Host, Identity
from stages.tools.mlperf.inputs import Example, Stream, read_examples, read_streams, write_examples, write_stream
from stages.tools.mlperf.pages import Page, accuracy_page, energy_page, performance_page, stream_page
from stages.tools.mlperf.submission import (
    Facts,
    check_division,
    results_folder,
    system_id,
    write_code,
    write_readme,
    write_system,
)
from stages.tools.mlperf.tasks import Task, task_named

_FIGURES = ("Median", "Top 1%", "AUC", "Accuracy:", "duty cycle:")  # of results.txt, for the screen
_STREAM_WORDS = 20  # of a recording made here: a minute


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was asked for."""

    task: str
    board: str
    source: str
    out: Path
    data: Path | None = None  # official inputs; without: the run's own test set
    most_inputs: int = 0  # for accuracy; 0: all
    window_s: float = 10.0
    division: str = "open"
    submitter: str = "submitter"
    bench: Path = Path("bench.yaml")
    lock_wait_s: float = 600.0


def settings(task: str, energy: bool) -> Answer:
    """Of the firmware for this task."""
    found = task_named(task).settings(energy)
    return Answer("\n".join(found), {"settings": found})


def prepare(wanted: Mapping[str, Any], pruned: bool) -> Answer:
    """The folder to fill; refuses what cannot be before anything is built."""
    given = Wanted(**wanted)
    task_named(given.task)
    division = check_division(given.division, pruned)
    if given.data is not None and not given.data.is_dir():
        raise ConfigError(f"--data {given.data}: no such folder, needed one with the task's official inputs")
    folder = given.out / division / given.submitter
    return Answer(str(folder), {"folder": folder})


class _Quiet:
    """A progress that nobody watches."""

    def start(self, total: int, unit: str) -> None: ...
    def advance(self, count: int = 1, note: str = "") -> None: ...


def run(wanted: Mapping[str, Any], artifacts: Mapping[str, Path], energy: bool) -> Answer:
    """The modes of one image; what the submission must know of it."""
    given, task = Wanted(**wanted), task_named(wanted["task"])
    session = _Session(given, task, artifacts, _Quiet())
    pages = session.energy() if energy else session.performance_and_accuracy()
    folder = given.out / given.division / given.submitter
    system = system_id(session.board, session.identity.is_virtual)
    for page in pages:
        page.write(results_folder(folder, system, task) / page.mode, session.identity)
    told = {"device": session.identity.name, "build_id": session.identity.build_id, "inferences": session.inferences}
    return Answer(", ".join(page.mode for page in pages), told)


def submit(
    wanted: Mapping[str, Any],
    artifacts: Mapping[str, Mapping[str, Path]],
    runs: Mapping[str, Mapping[str, Any]],
    pruned: bool,
    command: str,
) -> Answer:
    """Systems, code and README beside the results, and the checker's verdict."""
    given, task = Wanted(**wanted), task_named(wanted["task"])
    first, footprint = runs["performance"], read_json(artifacts["performance"]["footprint"])
    board = load_board(given.board).at_clock(footprint["link"]["clock_hz"])
    folder = given.out / given.division / given.submitter
    facts = Facts(
        task=task.code,
        system=system_id(board, given.source == "virtual"),
        device=first["device"],
        division=check_division(given.division, pruned),
        pruned=pruned,
        source=given.source,
        build_ids={mode: run["build_id"] for mode, run in runs.items()},
        model_sha256=hashlib.sha256(artifacts["performance"]["model"].read_bytes()).hexdigest(),
        clock_hz=board.clock_hz,
        inferences=first["inferences"],
    )
    write_system(folder, board, facts, given.submitter, footprint["compiler"])
    write_code(folder, task, board, facts, artifacts, command)
    write_readme(folder, facts, given.submitter)
    return _verdict(folder, given.window_s)


def check(folder: Path) -> Answer:
    """`pipeline mlperf-check`: `ok` says whether nothing was found."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    return _verdict(folder, None)


def _verdict(folder: Path, window_s: float | None) -> Answer:
    found = check_folder(folder)
    results = {
        path.relative_to(folder).parent.as_posix(): [
            line.strip() for line in path.read_text().splitlines() if any(word in line for word in _FIGURES)
        ]
        for path in sorted(folder.rglob("results.txt"))
    }
    lines = [f"{name}: {'; '.join(told)}" for name, told in results.items()]
    record = {"folder": str(folder), "ok": not found.findings, "virtual": found.virtual}
    record |= {"findings": list(found.findings), "results": results, "window_s": window_s}
    return Answer("\n".join([*lines, found.text]), record)


class _Session:
    """One image, its link while it lasts, and what is to be sent."""

    def __init__(self, given: Wanted, task: Task, artifacts: Mapping[str, Path], progress: Progress) -> None:
        self.given, self.task, self.artifacts, self.progress = given, task, artifacts, progress
        self.built = read_json(artifacts["footprint"])
        self.board: Board = load_board(given.board).at_clock(self.built["link"]["clock_hz"])
        self.target = Target(given.board, "virtual" if given.source == "virtual" else "hardware")
        self.identity = Identity("", "", "")
        self.inferences = 1

    def performance_and_accuracy(self) -> list[Page]:
        if self.task.stream:
            return self._stream_pages()
        examples = self._examples()
        with self._link() as device:
            host = Host(device.link, self.task)
            self.identity = host.identify()
            windows = host.performance(examples, self.given.window_s, self.progress)
            self.inferences = windows[0].inferences
            performance = performance_page(host.log, windows)
            host = Host(device.link, self.task)
            host.identify()
            return [performance, accuracy_page(self.task, host.log, host.accuracy(examples, self.progress))]

    def energy(self) -> list[Page]:
        with self._link() as device:
            host = Host(device.link, self.task)
            self.identity = host.identify()
            if self.task.stream:
                return [self._stream_energy_page(device, host)]
            sent = self._examples()[0].windows[0]
            if self.target.source == "virtual":
                seen = twin_energy(device.link, self.board, self.artifacts["twin"], sent, self.given.window_s)
                point: str = self.board.power_point
            else:
                device.link.load(sent)
                latency_s = sum(layer.ticks for layer in device.link.layers()) / self.board.clock_hz
                seen, point = board_energy(
                    device, self.given.bench, sent, latency_s, self.given.window_s, self.given.lock_wait_s
                )
            return [energy_page(host.log, seen, point)]

    def _link(self) -> Any:
        access = BoardAccess(wait_s=self.given.lock_wait_s, first_baud=self.built["link"]["baud"])
        return open_link(self.target, self.board, read_json(self.artifacts["flash"]), self.artifacts["twin"], access)

    def _examples(self) -> tuple[Example, ...]:
        size, most = self.built["link"]["input_bytes"], self.given.most_inputs
        if self.given.data is not None:
            return read_examples(self.given.data, self.task, size, most)
        graph = read_tflite(self.artifacts["model"])
        own = choose_inputs(self.artifacts["features"], graph, most or 10**6)
        sent = input_form(self.built, graph).sent(own.inputs)
        return read_examples(write_examples(self.given.out / "inputs", self.task, sent, own.labels), self.task, size)

    def _streams(self) -> tuple[Stream, ...]:
        if self.given.data is not None:
            return read_streams(self.given.data, self.task)
        from stages.measure.audio.scene import speak_scene  # torch: only where there is audio

        scene = speak_scene(read_json(self.artifacts["dataset"])["classes"], _STREAM_WORDS)
        words = tuple((word.start_s, word.end_s) for word in scene.spoken if word.word is not None)
        made = Stream("spoken.wav", scene.samples, words)
        return read_streams(write_stream(self.given.out / "inputs", self.task, made), self.task)

    def _heard(self, host: Host) -> tuple[Heard, ...]:
        front = self.built["front_end"]
        rate = front["sample_rate_hz"]
        hop_s, window_s = front["hop_samples"] / rate, front["window_samples"] / rate
        return host.stream(
            self._streams(), hop_s, window_s, front["stream"]["run_hops"], self.board.clock_hz, self.progress
        )

    def _stream_pages(self) -> list[Page]:
        with self._link() as device:
            host = Host(device.link, self.task)
            self.identity = host.identify()
            page = stream_page("performance", host.log, self._heard(host))
            return [page, replace(page, mode="accuracy")]

    def _stream_energy_page(self, device: OpenLink, host: Host) -> Page:
        if device.source != "virtual":
            raise StageError("mlperf: energy of a stream needs audio at its own pace over I2S; give --no-energy")
        heard = self._heard(host)
        front = self.built["front_end"]
        profile = profile_network(
            self.artifacts["twin"],
            bytes(self.built["link"]["input_bytes"]),
            self.board,
            bytes(2 * front["clip_samples"]),
        )
        if profile is None:
            raise StageError("mlperf: energy of a twin needs a C compiler; apt-get install gcc, or give --no-energy")
        hops = front["stream"]["run_hops"]
        cycles = sum(op.cycles_modelled for op in profile[1:]) + hops * profile[0].cycles_modelled / front["frames"]
        period_s = hops * front["hop_samples"] / front["sample_rate_hz"]
        seconds = math.fsum(one.seconds for one in heard)
        seen = stream_energy(self.board, cycles / self.board.clock_hz, period_s, seconds)
        host.log.append(f"Duty cycle modelled = {cycles / self.board.clock_hz / period_s:.4f}")
        return energy_page(host.log, seen, self.board.power_point)
