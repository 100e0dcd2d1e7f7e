"""A Ray cluster on this machine, of as many nodes as one likes, each a process that can be killed."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120", "RAY_worker_niceness": "0"}
_OBJECT_STORE_BYTES = 80_000_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, is_so: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(0.1)


@dataclass
class SmallCluster:
    """Its processes end when the block of `small_cluster` is left."""

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # nobody else joins
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def access(self) -> dict[str, str]:
        """Environment of whoever wants to use it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def start(self, name: str, argv: list[str], environment: Mapping[str, str] | None = None) -> None:
        """A process whose output is in `<name>.log`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **QUIET, **self.access, **self.environment, **(environment or {})},
            )

    def start_node(self, name: str, cpus: int, environment: Mapping[str, str] | None = None) -> None:
        head = ["--head", f"--port={self.port}", "--include-dashboard=false"]
        where = head if not self.processes else [f"--address={self.address}"]
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *where]
        argv += [f"--num-cpus={cpus}", f"--object-store-memory={_OBJECT_STORE_BYTES}", "--include-log-monitor=false"]
        self.start(name, argv, environment)

    def start_worker(self, name: str, project: Path, *virtual: str) -> None:
        twins = [word for board in virtual for word in ("--virtual", board)]
        argv = [sys.executable, "-m", "pipeline.cli", "--file", str(project), "worker", "--address", self.address]
        self.start(name, [*argv, *twins])

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_until_up(self, *names: str) -> None:
        for name in names:
            wait_for(f"{name} is up", functools.partial(self._is_up, name))

    def _is_up(self, name: str) -> bool:
        assert self.processes[name].poll() is None, f"{name} ended: {self.said(name)}"
        return any(word in self.said(name) for word in ("Ray runtime started", "offered to the cluster"))

    def kill(self, name: str) -> None:
        """As kill -9 does; of a node, Ray's processes follow."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextlib.contextmanager
def small_cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[SmallCluster]:
    cluster = SmallCluster(folder, environment or {})
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield cluster
    finally:
        for process in reversed(cluster.processes.values()):
            process.kill()
        for process in cluster.processes.values():
            process.wait()
