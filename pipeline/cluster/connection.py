"""The address of a Ray cluster -> a connection to it, and who is in it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import ConfigError, PipelineError

EXTRA = "tinyml-pipeline[ray]"
# Of nodes that we start. Ray would have steps at the lowest priority (15): a serial link does not wait for that.
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
_CONNECT_S = 10.0
_OBJECT_STORE_BYTES = 80_000_000  # about the least that Ray takes: files do not travel through it


class ClusterError(PipelineError):
    """The cluster cannot be reached or used."""


def ray_module(who: str) -> Any:
    """Ray, imported when it is needed; `who` asked for it."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"{who}: Ray is not installed; install it with: pip install '{EXTRA}'")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return importlib.import_module("ray")


def refuse_unreachable(address: str) -> None:
    """Now: Ray would try for minutes. Names such as `auto` are Ray's own."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"--address {address}: nobody answers there ({error}); start a cluster with `ray start --head`"
        ) from error


@dataclass(frozen=True)
class ClusterNode:
    """A machine, or a board of one."""

    id: str
    host: str
    resources: Mapping[str, float]


class Cluster:
    """A connection; it ends with this process."""

    def __init__(self, address: str | None) -> None:
        named = address or os.environ.get("RAY_ADDRESS")
        if named is None and "RAY_AUTH_MODE" not in os.environ:
            # Left to itself Ray writes a token into the user's home, and clusters started later would ask for it.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}  # before Ray is imported
        self.ray = ray_module("--executor ray")
        if not self.ray.is_initialized():
            _connect(self.ray, named)

    def nodes(self) -> list[ClusterNode]:
        return [
            ClusterNode(one["NodeID"], one["NodeManagerHostname"], dict(one["Resources"]))
            for one in self.ray.nodes()
            if one["Alive"]
        ]

    def offered(self) -> frozenset[str]:
        """Names of everything that nodes have, such as 'CPU' and 'board:nucleo_f767zi'."""
        return frozenset(name for node in self.nodes() for name in node.resources)

    def boards(self) -> frozenset[str]:
        """Kinds of real boards that workers offer."""
        return frozenset(name.partition(":")[2] for name in self.offered() if name.startswith("board:"))

    def width(self) -> int:
        """How many steps can run at once, if each takes one processor or one board."""
        boards = ("board:", "twin:")
        amounts = [
            amount
            for node in self.nodes()
            for name, amount in node.resources.items()
            if name == "CPU" or name.startswith(boards)
        ]
        return max(1, int(sum(amounts)))


def _connect(ray: Any, address: str | None) -> None:
    """Join the cluster, or make one on this machine that ends with this process."""
    alone = {"address": "local", "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    known = alone if address is None else {"address": address}
    if address is not None:
        refuse_unreachable(address)
    try:
        ray.init(**known, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if address is None:
            raise ClusterError(f"--executor ray: no cluster could be started on this machine ({said})") from error
        raise ClusterError(
            f"--address {address}: no cluster can be used there ({said}); "
            f"start one with `ray start --head`, and join it here with `ray start --address={address}`"
        ) from error
    # Ray prints what its own processes log when one of them is lost: a run says that in a sentence of its own.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
