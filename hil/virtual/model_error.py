"""How far modelled time is from boards that somebody measured, area by area; no board of ours was ever measured.

For the H743 others' code can be compared: nine networks of TensorFlow Lite Micro with CMSIS-NN (the commits that
TinyEngine's README names, -Ofast, GCC 12), counted by this profiler, against the milliseconds that README gives at 480
MHz (`peers_h743.csv`; arena in cached RAM). Their ratios are recomputed from the costs of a line in board.yaml, and two
parts are told apart, since cache lines take 6 to 15 % of the nine: what the core does, and waiting for lines. Other
figures were found once, with the costs of that time (store fills and write-backs charged like loads): TinyEngine's own
kernels, made for each layer like ours, and one network on an F746. Dense and depthwise layers occur in all of these
networks and are not told apart by them; a board that was calibrated tells them apart by itself.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

PEERS = Path(__file__).with_name("peers_h743.csv")
PEER_BOARD, PEER_CLOCK_HZ = "nucleo_h743zi2", 480_000_000
TINY_ENGINE = (1.07, 1.30)  # modelled over published, networks with its kernels on the H743
ON_AN_F746 = 1.11  # one network
F7_BOARDS = ("nucleo_f767zi", "disco_f746ng")
MOST_LINE_FACTOR = 2.0  # a line of an F7 costs between nothing and twice what board.yaml says: a guess
MEMORY_BOUND = 0.25  # share of cache lines in the time; beyond all that was compared
_DENSE = ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "UNIDIRECTIONAL_SEQUENCE_LSTM", "SVDF")
_DEPTHWISE = "DEPTHWISE_CONV_2D"
AREAS = ("dense", "depthwise", "memory-bound", "other")
NETWORK = "network"


class LineCosts(Protocol):
    """Core cycles that a line costs: a board's cache, or a profiler's model of it."""

    @property
    def flash_fill_cycles(self) -> float: ...
    @property
    def ram_load_fill_cycles(self) -> float: ...
    @property
    def ram_store_fill_cycles(self) -> float: ...
    @property
    def write_back_cycles(self) -> float: ...


class Found(Protocol):
    """A calibration: modelled over measured of code that was not in its fit."""

    @property
    def device(self) -> str: ...
    @property
    def areas(self) -> Mapping[str, Any]: ...


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

    def line_cycles(self, costs: LineCosts) -> float:
        lines = self.flash_fills * costs.flash_fill_cycles + self.load_fills * costs.ram_load_fill_cycles
        return lines + self.store_fills * costs.ram_store_fill_cycles + self.write_backs * costs.write_back_cycles

    @property
    def published_cycles(self) -> float:
        return self.published_ms * PEER_CLOCK_HZ / 1e3

    def ratio(self, costs: LineCosts) -> float:
        """Modelled over published time."""
        return (self.cycles_zero_wait + self.line_cycles(costs)) / self.published_cycles


@dataclass(frozen=True)
class Parts:
    """Board over model, for the core and for cache lines, as the nine networks have it."""

    factors: np.ndarray  # core, lines
    covariance: np.ndarray
    residual: float  # share by which the two parts miss the nine

    def board_over_model(self, line_share: float) -> tuple[float, float]:
        """And its standard deviation."""
        weights = np.array([1 - line_share, line_share])
        deviation = np.sqrt(weights @ self.covariance @ weights + self.residual**2)
        return float(weights @ self.factors), float(deviation)


@dataclass(frozen=True)
class ModelError:
    """Modelled over board: what is known for one area, or for a network as a whole."""

    area: str
    n: int  # networks, or layers of a calibration
    low: float | None  # ratio; None where nothing can be compared
    high: float | None
    against: str

    def span_ms(self, modelled_ms: float | None) -> tuple[float | None, float | None]:
        """What a board is likely to take where the model says so much."""
        if modelled_ms is None or self.low is None or self.high is None:
            return None, None
        return modelled_ms / self.high, modelled_ms / self.low

    @property
    def ratio_text(self) -> str:
        if self.low is None or self.high is None:
            return "error unknown"
        return f"model / board {self.low:.2f} to {self.high:.2f}"

    @property
    def text(self) -> str:
        return f"{self.ratio_text} ({self.against})"


@cache
def peers(path: Path = PEERS) -> tuple[Peer, ...]:
    """The nine networks."""
    whole = ("cycles_zero_wait", "load_fills", "store_fills", "flash_fills", "write_backs")
    with path.open(newline="") as stream:
        return tuple(
            Peer(row["network"], float(row["published_ms"]), *(int(row[column]) for column in whole))
            for row in csv.DictReader(stream)
        )


def parts(costs: LineCosts, networks: Sequence[Peer] | None = None) -> Parts:
    """Least squares on shares: published = core * zero wait + lines * line cycles."""
    seen = peers() if networks is None else networks
    share = np.array([[one.cycles_zero_wait, one.line_cycles(costs)] for one in seen])
    share /= np.array([[one.published_cycles] for one in seen])
    factors = np.linalg.pinv(share) @ np.ones(len(seen))
    residual = float(np.sqrt(np.sum((share @ factors - 1) ** 2) / (len(seen) - 2)))
    return Parts(factors, np.linalg.pinv(share.T @ share) * residual**2, residual)


def area_of(kind: str, line_share: float) -> str:
    """Of an operator by what it is, and by how much of its time goes into cache lines."""
    if line_share >= MEMORY_BOUND:
        return "memory-bound"
    if kind == _DEPTHWISE:
        return "depthwise"
    return "dense" if kind in _DENSE else "other"


def model_error(
    board: str, costs: LineCosts, area: str = NETWORK, line_share: float = 0.0, calibration: Found | None = None
) -> ModelError:
    """What is known of the modelled time of code on this board; `line_share`: of cache lines in that time."""
    if calibration is not None:
        return _calibrated(area, calibration)
    if area == "other" and board in (PEER_BOARD, *F7_BOARDS):
        return ModelError(area, 0, None, None, "no such operator was ever compared with a board")
    if board == PEER_BOARD:
        value, deviation = parts(costs).board_over_model(line_share)
        low, high = 1 / (value + 2 * deviation), 1 / (value - 2 * deviation)
        if area == "memory-bound":
            against = "nine networks of others on the H743, of which lines take 6 to 15 %: extrapolated"
            return ModelError(area, len(peers()), low, high, against)
        against = "nine networks of others on the H743, and TinyEngine's kernels"
        return ModelError(area, len(peers()), min(low, TINY_ENGINE[0]), max(high, TINY_ENGINE[1]), against)
    if board in F7_BOARDS:
        value, deviation = parts(costs).board_over_model(0.0)  # the core is the same
        fast = (value - 2 * deviation) * (1 - line_share)
        slow = (value + 2 * deviation) * (1 - line_share) + MOST_LINE_FACTOR * line_share
        against = "its core as in nine networks on an H743, one network on an F746; what a line costs is a guess"
        return ModelError(area, len(peers()) + 1, min(1 / slow, ON_AN_F746), max(1 / fast, ON_AN_F746), against)
    return ModelError(area, 0, None, None, "no measured board to compare with")


def _calibrated(area: str, calibration: Found) -> ModelError:
    name = area if area in calibration.areas else NETWORK
    found = calibration.areas[name]
    what = "networks" if name == NETWORK else f"{name} operators"
    against = f"calibrated on {calibration.device}; {found.n} {what} that were not in the fit"
    return ModelError(area, found.n, found.low, found.high, against)
