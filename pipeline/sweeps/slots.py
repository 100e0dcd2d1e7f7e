"""Steps of many points -> one executor, a few at a time: the earliest point first; what failed once fails for all."""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.engine.executor import Executor, OnEvent, StepFailed
from pipeline.engine.worker import Job
from pipeline.errors import PipelineError


class SweepStopped(PipelineError):
    """The sweep was interrupted before this step began."""


class Slots:
    """A point that waits for another one's step, or works between steps, holds no slot."""

    def __init__(self, executor: Executor, count: int) -> None:
        self.executor, self._free = executor, count
        self._mutex = threading.Lock()
        self._waiting: list[tuple[int, int, threading.Event]] = []  # a slot is handed to the first: no other one wakes
        self._arrivals = 0
        self.is_stopped = False
        self._failed: dict[str, StepFailed] = {}  # key -> its error

    def lane(self, number: int) -> Lane:
        """The executor as the point of this number sees it."""
        return Lane(self, number)

    def stop(self) -> None:
        """End what runs; what waits is not begun."""
        with self._mutex:
            self.is_stopped = True
            for _, _, is_called in self._waiting:
                is_called.set()
        self.executor.stop()

    def failure(self, key: str) -> StepFailed | None:
        """Of a step of the same key: the same files and settings would fail again."""
        return self._failed.get(key)

    def remember(self, key: str, error: StepFailed) -> None:
        if not error.infrastructure and not self.is_stopped:
            self._failed[key] = error

    @contextlib.contextmanager
    def taken(self, number: int) -> Iterator[None]:
        is_called = threading.Event()
        with self._mutex:
            if self._free > 0 or self.is_stopped:
                self._free -= 1
                is_called.set()
            else:
                self._arrivals += 1
                heapq.heappush(self._waiting, (number, self._arrivals, is_called))
        is_called.wait()
        try:
            if self.is_stopped:
                raise SweepStopped("the sweep was interrupted; run it again to go on")
            yield
        finally:
            with self._mutex:
                if self._waiting:
                    heapq.heappop(self._waiting)[2].set()
                else:
                    self._free += 1


@dataclass(frozen=True)
class Lane:
    """An `Executor` for one point."""

    slots: Slots
    number: int

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        key = job.checkpoint_dir.name  # checkpoints lie in a folder named by the key
        with self.slots.taken(self.number):
            if job.check is None and (error := self.slots.failure(key)) is not None:
                raise StepFailed(str(error), error.exit_code, error.trace)
            try:
                return self.slots.executor.run(name, job, lock=lock, log=log, on_event=on_event)
            except StepFailed as error:
                if job.check is None:
                    self.slots.remember(key, error)
                raise

    def stop(self) -> None:
        """The executor serves other points, too."""
