"""The boards of a host -> nodes of a Ray cluster, one for each board: it is there while its board is.

A board is one node of its own, because what a node offers is fixed when it starts: so a board can come and go without
a word to the others. The node has no processors for other steps; it offers `board:<kind>` and `probe:<serial number>`
once, hence one job at a time. This process holds the board's lock meanwhile and lends it to the jobs. When it ends,
also by kill -9, the kernel frees the lock and ends the node, and with it what runs there.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Protocol

from pipeline.cluster.connection import ClusterError, ray_module, refuse_unreachable
from pipeline.cluster.node import OFFERS
from pipeline.cluster.resources import board_resource, probe_resource
from pipeline.errors import HardwareError
from pipeline.stage import Target

_LOOK_EVERY_S = 1.0
_GONE_AFTER_S = 10.0  # a probe that resets is away for a moment
_AGAIN_AFTER_S = 10.0
_END_WITHIN_S = 15.0
_MOST_FAILURES = 3
_NEXT_NODE = "next node of a cluster"
_OBJECT_STORE_BYTES = 80_000_000  # about the least that Ray takes: files do not travel through it
_MOST_LOG_BYTES = 1 << 20
_STARTED = "Ray runtime started"
_PR_SET_PDEATHSIG = 1


class Bench(Protocol):
    """What `tools.offer` of the project gives: the boards of this machine."""

    def boards(self) -> Mapping[str, str]: ...
    def lock(self, serial: str, purpose: str) -> Any: ...  # of a board, or of what happens once at a time here
    def environment(self, serial: str) -> Mapping[str, str]: ...


@dataclass
class _Offer:
    """A board with its lock and its node."""

    name: str
    held: ExitStack
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    starting: ExitStack  # held until it is up
    is_up: bool = False

    def told(self) -> str:
        """By its node so far; the place where that writes next is not moved."""
        return os.pread(self.log.fileno(), _MOST_LOG_BYTES, 0).decode(errors="replace")


class BoardWorker:
    """`pipeline worker`."""

    def __init__(self, address: str, bench: Bench, virtual: Sequence[str], report: Callable[[str], None]) -> None:
        ray_module("pipeline worker")
        refuse_unreachable(address)
        self._address, self._bench, self._report = address, bench, report
        self._twins = {f"twin-{name}": Target(name, "virtual") for name in virtual}
        self._offers: dict[str, _Offer] = {}
        self._seen: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._said: set[str] = set()
        self._failures = 0  # of nodes that never came up, one after the other

    def serve(self) -> None:
        """Until it is interrupted."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                self.look()
                time.sleep(_LOOK_EVERY_S)
        except KeyboardInterrupt:
            self._report("worker: ends; its boards are withdrawn")
        finally:
            self.end()

    def look(self) -> None:
        """Offer what is new, withdraw what is gone."""
        there = self._there()
        now = time.monotonic()
        self._seen |= dict.fromkeys(there, now)
        if not there and not self._offers:
            self._say("worker: no board is attached yet; it waits for one (--virtual NAME offers a twin)")
        for serial, target in there.items():
            if serial not in self._offers and now >= self._not_before.get(serial, now):
                self._offer(serial, target)
        for serial, offer in list(self._offers.items()):
            if now - self._seen[serial] > _GONE_AFTER_S:
                self._withdraw(serial, "is not attached any more")
            elif offer.process.poll() is not None:
                self._node_ended(serial, offer)
            elif not offer.is_up and _STARTED in offer.told():
                offer.is_up = True
                offer.starting.close()
                self._report(f"{offer.name}: offered to the cluster at {self._address}")

    def end(self) -> None:
        for offer in self._offers.values():
            offer.process.terminate()
        for serial in list(self._offers):
            self._withdraw(serial, "")

    def _there(self) -> dict[str, Target]:
        try:
            real = {serial: Target(board, "hardware") for serial, board in self._bench.boards().items()}
        except HardwareError as error:
            self._say(f"worker: {error}")
            real = {serial: Target("", "hardware") for serial in self._offers if serial not in self._twins}
        return {**real, **self._twins}

    def _offer(self, serial: str, target: Target) -> None:
        name = f"{target.board} ({serial})"
        with ExitStack() as stack:
            try:
                stack.enter_context(self._bench.lock(serial, f"offered to the cluster at {self._address}"))
            except HardwareError as error:
                self._not_before[serial] = time.monotonic() + _AGAIN_AFTER_S
                return self._say(f"{error}; it is offered when it is free")
            starting = stack.enter_context(ExitStack())
            try:
                starting.enter_context(self._bench.lock(_NEXT_NODE, "starts a node"))
            except HardwareError:
                return  # Ray's nodes of one machine must start one after the other: they count up names
            log = stack.enter_context(tempfile.TemporaryFile())
            process = self._start(serial, target, log)
            self._offers[serial] = _Offer(name, stack.pop_all(), process, log, starting)

    def _start(self, serial: str, target: Target, log: IO[bytes]) -> subprocess.Popen[bytes]:
        offered = {board_resource(target): 1}
        if target.source == "hardware":
            offered[probe_resource(serial)] = 1
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={self._address}"]
        argv += ["--num-cpus=0", "--num-gpus=0", f"--resources={json.dumps(offered)}", "--disable-usage-stats"]
        argv += [f"--object-store-memory={_OBJECT_STORE_BYTES}", "--include-log-monitor=false"]
        named = {OFFERS: f", which offers {', '.join(offered)}", "RAY_raylet_start_wait_time_s": "60"}
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**named, **os.environ, **self._bench.environment(serial)},
            start_new_session=True,  # Ctrl-C is for this process; it withdraws its boards in order
            preexec_fn=_die_with_parent(),
        )

    def _node_ended(self, serial: str, offer: _Offer) -> None:
        lines = [line for line in offer.told().splitlines() if line.strip()]
        said = f"{offer.name}: its node at {self._address} ended ({lines[-1].strip() if lines else 'no word'})"
        self._failures = 0 if offer.is_up else self._failures + 1
        self._withdraw(serial, "")
        if self._failures == _MOST_FAILURES:
            raise ClusterError(f"{said}; is there a Ray cluster at that address?")
        self._not_before[serial] = time.monotonic() + _AGAIN_AFTER_S
        self._report(f"{said}; it is started again")

    def _withdraw(self, serial: str, why: str) -> None:
        offer = self._offers.pop(serial)
        if why:
            self._report(f"{offer.name}: {why}; it is withdrawn")
        with offer.held:
            offer.process.terminate()
            try:
                offer.process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                offer.process.kill()
                offer.process.wait()

    def _say(self, sentence: str) -> None:
        """Once."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._report(sentence)


def _die_with_parent() -> Callable[[], None] | None:
    """To be run in the child: the kernel ends it when the parent is gone (Linux only); Ray's processes follow it."""
    if platform.system() != "Linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel
