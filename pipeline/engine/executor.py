"""Executes one step in a process of its own and relays what it reports.

The worker inherits the lock of the key it builds: should the engine be killed, the key stays locked until its worker
has noticed and ended too, so no two processes ever build the same thing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pipeline.engine.worker import Job
from pipeline.errors import LAST_LINES, PipelineError, StageError

OnEvent = Callable[[Mapping[str, Any]], None]

# Busy waiting in OpenMP is ruinous when the cores are shared; a fixed hash seed keeps set order, hence bytes, the same.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONHASHSEED": "0"}


class StepFailed(PipelineError):
    """A step ended with an error of its own; carries its exit code, and the traceback when it was a bug."""

    def __init__(self, message: str, exit_code: int, trace: str | None, infrastructure: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.trace = trace
        self.infrastructure = infrastructure  # a board or an instrument misbehaved: another try may help


class Executor(Protocol):
    """Somewhere a step can run."""

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        """Execute `job`; returns artifact -> path relative to its out_dir."""

    def stop(self) -> None:
        """End every running step at once."""


class LocalExecutor:
    """Runs steps as child processes of the engine."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        log.parent.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        argv = [sys.executable, "-m", "pipeline.engine.worker", str(write_end)]
        with log.open("wb") as log_file, os.fdopen(read_end) as events:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end, lock),
                env={**os.environ, **_ENVIRONMENT},
            )
            os.close(write_end)
            self._running.add(process)
            try:
                last = _relay(process, job, events, on_event)
                process.wait()
            finally:
                process.kill()
                process.communicate()  # closes our end of its stdin, too
                self._running.discard(process)
        if last.get("event") == "done":
            return dict(last["outputs"])
        if last.get("event") == "error":
            message = last["message"].removeprefix(f"{name.partition('[')[0]}: ")
            raise StepFailed(
                f"{name}: {message}", last["exit_code"], last.get("trace"), last.get("infrastructure", False)
            )
        raise StageError(_ended_early(name, process.returncode, log))

    def stop(self) -> None:
        """End every running step at once."""
        for process in tuple(self._running):
            process.kill()


def _relay(process: subprocess.Popen[bytes], job: Job, events: Any, on_event: OnEvent) -> Mapping[str, Any]:
    """Hand the job over, pass progress on, and return the closing event."""
    assert process.stdin is not None
    last: Mapping[str, Any] = {}
    try:
        process.stdin.write(job.model_dump_json().encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return last
    for line in events:
        last = json.loads(line)
        on_event(last)
    return last


def _ended_early(name: str, code: int, log: Path) -> str:
    tail = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    hint = "; was memory short?" if code == -signal.SIGKILL else ""
    return "\n".join(
        [f"{name}: its process was ended {how} before it was done{hint}; log: {log}", *(f"    {line}" for line in tail)]
    )
