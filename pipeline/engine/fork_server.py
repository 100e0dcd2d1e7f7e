"""The process that forks one worker for each step: `python -m pipeline.engine.fork_server REQUESTS_FD`.

What every step imports is imported once, and so is the module of each step, so a step begins within milliseconds. A
request is one byte with three descriptors: the channel of the step, its log, the lock of its key. The job comes through
the channel as one JSON line; the worker's events go back through it, and in the end how its process ended. Closing the
channel ends the worker; closing the requests ends all of them and the server. Should the server die, its workers go on
and watch their channels themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from pipeline.engine.worker import Job, end_with_engine, work

_MOST_BYTES = 1 << 16
_TICK_NS = 50_000_000  # the clock of a file system is no finer
_INSTALLED = {"site-packages", "dist-packages"}
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ORPHANED = int(signal.SIGUSR2)  # what a worker hears when the server is gone
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Preloaded:
    """Modules of steps, imported before the fork. A worker imports them itself if one of their files has changed."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._tried: set[str] = set()
        self._files: dict[str, tuple[str, tuple[int, int, int] | None]] = {}  # module -> its file, and how it was

    def load(self, job: Job) -> None:
        if self._root is None:
            self._root = job.root
            sys.path.insert(0, str(job.root))
        if job.root != self._root or job.module in self._tried:
            return
        self._tried.add(job.module)
        if not _is_light(job.module):
            return
        before, begin = set(sys.modules), time.time_ns()
        importlib.import_module(job.module)
        for name in sys.modules.keys() - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not _INSTALLED & set(Path(file).parts):
                state = _state(file)
                settled = state is not None and state[1] < begin - _TICK_NS
                self._files[name] = (file, state if settled else None)
        gc.freeze()  # what workers share with the server stays shared

    def forget_if_changed(self) -> None:
        """In a worker."""
        if any(state is None or _state(file) != state for file, state in self._files.values()):
            for name in self._files:
                sys.modules.pop(name, None)


def _is_light(module: str) -> bool:
    """Can be imported, and leaves no thread behind, which a fork would lose: found out in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            importlib.import_module(module)
            code = int(len(os.listdir("/proc/self/task")) > 1)
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _state(file: str) -> tuple[int, int, int] | None:
    try:
        seen = os.stat(file)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ino


class _Server:
    """Workers that live, by process id, each with the channel that it answers to."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._own: socket.socket | None = None  # in a worker: its channel
        self._channels: dict[int, socket.socket] = {}
        self._preloaded = _Preloaded()
        self._woken, self._wake = socket.socketpair()  # a signal becomes a byte, which the selector sees
        self._wake.setblocking(False)
        self._selector = selectors.PollSelector()  # has no descriptor of its own that a fork would share
        self._selector.register(self._requests, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        # The workers keep these: setting them anew would take as long as a short step.
        signal.signal(signal.SIGINT, self._interrupted)
        signal.signal(_ORPHANED, self._orphaned)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._requests:
                    if not self._accept():
                        return self._end_all()
                elif key.fileobj is self._woken:
                    self._woken.recv(_MOST_BYTES)
                    self._tell_of_ended()
                elif key.data in self._channels:  # the engine has closed it: nothing else makes it readable
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _accept(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._requests, 1, 3)
        if not message:
            return False
        channel, (log, lock) = socket.socket(fileno=descriptors[0]), descriptors[1:]
        pid = -1
        if line := _line(channel):
            job, server = Job.model_validate_json(line), os.getpid()
            self._preloaded.load(job)
            pid = os.fork()
            if pid == 0:
                self._become_worker(job, channel, log, server)
        os.close(log)
        os.close(lock)
        if pid < 0:
            channel.close()
            return True
        self._channels[pid] = channel
        self._selector.register(channel, selectors.EVENT_READ, data=pid)
        return True

    def _become_worker(self, job: Job, channel: socket.socket, log: int, server: int) -> NoReturn:
        """It keeps its own channel, log and lock, and nothing that belongs to others."""
        self._own = channel
        signal.set_wakeup_fd(-1)
        _LIBC.prctl(_PR_SET_PDEATHSIG, _ORPHANED)
        if os.getppid() != server:
            end_with_engine(channel)
        for other in (self._requests, self._woken, self._wake, *self._channels.values()):
            os.close(other.detach())
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self._preloaded.forget_if_changed()
        work(job, channel)

    def _interrupted(self, *_: object) -> None:
        """Ctrl-C reaches the whole terminal: a worker ends, for the server the engine decides."""
        if self._own is not None:
            raise KeyboardInterrupt

    def _orphaned(self, *_: object) -> None:
        """A thread that watches the channel costs as much as a short step: it begins when nobody else does it."""
        if self._own is not None:
            end_with_engine(self._own)

    def _tell_of_ended(self) -> None:
        while self._channels:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            channel = self._channels.pop(pid)
            with contextlib.suppress(KeyError):  # when the engine closed it first
                self._selector.unregister(channel)
            ended = {"event": "exit", "code": os.waitstatus_to_exitcode(status)}
            with contextlib.suppress(OSError), channel:
                channel.sendall(json.dumps(ended).encode() + b"\n")

    def _end_all(self) -> None:
        for pid in self._channels:
            os.kill(pid, signal.SIGKILL)


def _line(channel: socket.socket) -> bytes:
    """Up to its end; empty if the engine is gone before that."""
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        parts.append(channel.recv(_MOST_BYTES))
        if not parts[-1]:
            return b""
    return b"".join(parts)


if __name__ == "__main__":
    _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
