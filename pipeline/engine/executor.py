"""Executes one step in a process of its own and relays what it reports.

The worker inherits the lock of the key it builds: should the engine be killed, the key stays locked until its worker
has noticed and ended too, so no two processes ever build the same thing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pipeline.engine.worker import Job
from pipeline.errors import LAST_LINES, PipelineError, StageError
from pipeline.files import ensure_folder

OnEvent = Callable[[Mapping[str, Any]], None]

# Busy waiting in OpenMP is ruinous when the cores are shared; a fixed hash seed keeps set order, hence bytes, the same.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONHASHSEED": "0"}

_CLOSING = ("done", "error")


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
        """End every running step at once and keep nothing running; a later step may still be run."""


class LocalExecutor:
    """Runs each step in a process of its own, forked by a server that starts with the first one."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._channels: set[socket.socket] = set()

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        ensure_folder(os.path.dirname(log))
        here, there = socket.socketpair()
        with here, open(log, "wb", buffering=0) as log_file:
            self._channels.add(here)
            try:
                with there:
                    self._request([there.fileno(), log_file.fileno(), lock], log_file.fileno())
                last, code = _relay(here, job, on_event)
            finally:
                self._channels.discard(here)
        if last.get("event") == "done":
            return dict(last["outputs"])
        if last.get("event") == "error":
            message = last["message"].removeprefix(f"{name.partition('[')[0]}: ")
            raise StepFailed(
                f"{name}: {message}", last["exit_code"], last.get("trace"), last.get("infrastructure", False)
            )
        raise StageError(_ended_early(name, code, log))

    def stop(self) -> None:
        with self._mutex:
            server, requests = self._server, self._requests
            self._server = self._requests = None
        for channel in tuple(self._channels):
            with contextlib.suppress(OSError):  # ended meanwhile
                channel.shutdown(socket.SHUT_RDWR)
        if server is not None and requests is not None:
            requests.close()
            server.wait()

    def _request(self, descriptors: list[int], log: int) -> None:
        """Have a worker forked; should the server have died since, by a new one."""
        with self._mutex:
            if self._requests is not None:
                with contextlib.suppress(OSError):
                    socket.send_fds(self._requests, [b"+"], descriptors)
                    return
                self._requests.close()
            if self._server is not None:
                self._server.wait()
            self._requests, its_end = socket.socketpair()
            with its_end:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", "pipeline.engine.fork_server", str(its_end.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(its_end.fileno(),),
                    env={**os.environ, **_ENVIRONMENT},
                )
            socket.send_fds(self._requests, [b"+"], descriptors)


def _relay(channel: socket.socket, job: Job, on_event: OnEvent) -> tuple[Mapping[str, Any], int | None]:
    """Hand the job over, pass progress on, and return the closing event and the exit code; None if nobody told it."""
    last: Mapping[str, Any] = {}
    try:
        channel.sendall(job.model_dump_json().encode() + b"\n")
        with channel.makefile("r") as events:
            for line in events:
                event = json.loads(line)
                if event["event"] == "exit":
                    return last, event["code"]
                last = event
                on_event(event)
                if event["event"] in _CLOSING:  # how its process ends is no part of the step
                    return last, None
    except ConnectionError:
        pass
    return last, None


def _ended_early(name: str, code: int | None, log: Path) -> str:
    tail = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
    if code is None:
        how = "together with the one that forked it"
    else:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    hint = "; was memory short?" if code == -signal.SIGKILL else ""
    return "\n".join(
        [f"{name}: its process was ended {how} before it was done{hint}; log: {log}", *(f"    {line}" for line in tail)]
    )
