"""The process that forks one worker for each step: `python -m pipeline.engine.fork_server REQUESTS_FD`.

What every step imports is imported once, so a step begins within about a millisecond. A request is one byte with three
descriptors: the channel of the step, its log, the lock of its key. The job comes through the channel as one JSON line;
the worker's events go back through it, and in the end how its process ended. Closing the channel ends the worker;
closing the requests ends all of them and the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

from pipeline.engine.worker import work

_MOST_BYTES = 1 << 16


class _Server:
    """Workers that live, by process id, each with the channel that it answers to."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._channels: dict[int, socket.socket] = {}
        self._woken, self._wake = socket.socketpair()  # a signal becomes a byte, which the selector sees
        self._wake.setblocking(False)
        self._selector = selectors.PollSelector()  # has no descriptor of its own that a fork would share
        self._selector.register(self._requests, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the engine decides
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
        job = _line(channel)
        pid = os.fork() if job else -1
        if pid == 0:
            self._become_worker(job, channel, log)
        os.close(log)
        os.close(lock)
        if pid < 0:
            channel.close()
            return True
        self._channels[pid] = channel
        self._selector.register(channel, selectors.EVENT_READ, data=pid)
        return True

    def _become_worker(self, job: bytes, channel: socket.socket, log: int) -> NoReturn:
        """It keeps its own channel, log and lock, and nothing that belongs to others."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for other in (self._requests, self._woken, self._wake, *self._channels.values()):
            other.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        work(job, channel)

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
