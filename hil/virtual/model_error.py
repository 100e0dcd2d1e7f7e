"""How far modelled cycles are from boards that somebody measured, area by area; no board of ours was ever measured.

For the H743 others' code can be compared: nine networks of TensorFlow Lite Micro with CMSIS-NN (the commits that
TinyEngine's README names, -Ofast, GCC 12), counted by this profiler, against the milliseconds that README gives at 480
MHz (`peers_h743.csv`; arena in cached RAM). Their ratios are recomputed from the costs of a line in board.yaml. All
other figures were found once, with the costs of that time (store fills and write-backs charged like loads).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

PEERS = Path(__file__).with_name("peers_h743.csv")
PEER_BOARD, PEER_CLOCK_HZ = "nucleo_h743zi2", 480_000_000


class LineCosts(Protocol):
    """What a board's description says of its lines, in core cycles."""

    @property
    def flash_fill_cycles(self) -> float: ...
    @property
    def ram_load_fill_cycles(self) -> float: ...
    @property
    def ram_store_fill_cycles(self) -> float: ...
    @property
    def write_back_cycles(self) -> float: ...


@dataclass(frozen=True)
class Peer:
    """One network of others: what the profiler counts, and what was published."""

    network: str
    published_ms: float
    cycles_zero_wait: int
    load_fills: int
    store_fills: int
    flash_fills: int
    write_backs: int

    def ratio(self, costs: LineCosts) -> float:
        """Modelled over published time."""
        lines = self.flash_fills * costs.flash_fill_cycles + self.load_fills * costs.ram_load_fill_cycles
        lines += self.store_fills * costs.ram_store_fill_cycles + self.write_backs * costs.write_back_cycles
        return (self.cycles_zero_wait + lines) / PEER_CLOCK_HZ * 1e3 / self.published_ms


@dataclass(frozen=True)
class ModelError:
    """Modelled over measured, of the nearest area that can be compared."""

    area: str  # what was compared
    n: int  # networks
    low: float | None  # ratio; None where nothing can be compared
    high: float | None

    @property
    def ratio_text(self) -> str:
        if self.low is None or self.high is None:
            return "error unknown"
        return "model / board " + (f"{self.low:.2f} to {self.high:.2f}" if self.n > 1 else f"{self.low:.2f}")

    @property
    def text(self) -> str:
        return f"{self.ratio_text} ({self.area}{f', n {self.n}' if self.n else ''})"


@cache
def peers(path: Path = PEERS) -> tuple[Peer, ...]:
    """The nine networks."""
    with path.open(newline="") as stream:
        return tuple(
            Peer(
                network=row["network"],
                published_ms=float(row["published_ms"]),
                cycles_zero_wait=int(row["cycles_zero_wait"]),
                load_fills=int(row["load_fills"]),
                store_fills=int(row["store_fills"]),
                flash_fills=int(row["flash_fills"]),
                write_backs=int(row["write_backs"]),
            )
            for row in csv.DictReader(stream)
        )


def model_error(board: str, costs: LineCosts, arena_is_cached: bool, calibration: object | None = None) -> ModelError:
    """What is known of the error of a network's modelled time on this board."""
    if calibration is not None:
        networks = getattr(calibration, "networks", {})
        shares = list(networks.values()) or [0.0]
        device = getattr(calibration, "device", "hardware")
        area = f"calibrated on {device}, networks that were not in the fit"
        return ModelError(area, len(networks), 1 + min(shares), 1 + max(shares))
    if board == PEER_BOARD:
        ratios = [peer.ratio(costs) for peer in peers()]
        where = "arena in cached RAM" if arena_is_cached else "their arena in cached RAM, here in DTCM"
        return ModelError(f"others' networks on the H743, {where}", len(ratios), min(ratios), max(ratios))
    if board in ("nucleo_f767zi", "disco_f746ng"):
        return ModelError("one network of others on an F746, costs of that time", 1, 1.11, 1.11)
    return ModelError("no measured board to compare with", 0, None, None)
