"""What the plan calls fitting links, what does not fit is refused before compiling: random networks at the limit.

    python -m tests.benchmarks.firmware.linked_limits --count 18 [--first 0]

A random network (tests/stages/firmware/random_networks.py) gets a branch that fills one memory of a board: a map and
its output for the RAM, a dense layer for the flash. The largest branch that the plan lets pass, within a 64th, is built
and linked; the next one was refused. Boards, memories and kernels take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boards import Board, load_board
from pipeline.errors import StageError
from stages.firmware.build.image import build_images, write_sources
from stages.firmware.economy import compile_within
from stages.firmware.fast.dot import Weights
from stages.firmware.memory.regions import place
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, Quantisation, Tensor
from stages.graph.memory.runtime_bound import runtime_bytes
from stages.graph.simplify.simplification import simplify
from tests.stages.firmware.random_networks import random_network

BOARDS = ("nucleo_f767zi", "nucleo_h743zi2", "disco_f746ng")
KERNELS: tuple[Weights, ...] = ("fast", "small")
_GRID = Quantisation((0.05,), (3,))
_FINE = 64  # steps: within so many of the limit is near enough
_DEPTH = 512


def with_map(graph: Graph, size: int) -> Graph:
    """A branch whose output is twice as long as its input."""
    weights = np.random.default_rng(0).integers(-127, 128, (8, 1, 1, 4)).astype(np.int8)
    return _with_branch(graph, (1, 16, size, 4), (1, 16, size, 8), weights, "CONV_2D")


def with_dense(graph: Graph, size: int) -> Graph:
    """A branch of so many dot products."""
    weights = np.random.default_rng(0).integers(-127, 128, (size, _DEPTH)).astype(np.int8)
    return _with_branch(graph, (1, _DEPTH), (1, size), weights, "FULLY_CONNECTED")


def _with_branch(
    graph: Graph, source: tuple[int, ...], result: tuple[int, ...], weights: np.ndarray, kind: str
) -> Graph:
    first = len(graph.tensors)
    outputs = len(weights)
    made = (
        Tensor("branch", source, "int8", _GRID),
        Tensor("weights", weights.shape, "int8", Quantisation((0.01,), (0,)), weights),
        Tensor("bias", (outputs,), "int32", None, np.zeros(outputs, np.int32)),
        Tensor("branched", result, "int8", replace(_GRID, scale=(0.9,))),
    )
    options = ConvOptions() if kind == "CONV_2D" else ActivationOptions()
    op = Op(kind, "branched", (first, first + 1, first + 2), (first + 3,), options)
    return Graph((*graph.tensors, *made), (*graph.ops, op), (*graph.inputs, first), (*graph.outputs, first + 3))


@dataclass(frozen=True)
class Limit:
    """The largest network of its kind that the plan lets pass, and the sentence on the next one."""

    size: int
    model: CompiledModel
    placement: Placement
    refusal: str


def limit_of(board: Board, graph: Graph, grow: Callable[[Graph, int], Graph], weights: Weights) -> Limit:
    def planned(size: int) -> tuple[CompiledModel, Placement]:
        network = grow(graph, size)
        model = compile_within(simplify(network), runtime_bytes(network), weights=weights, chains=())
        return model, place(model, board)

    low, high, refusal, best = 1, 0, "", planned(1)
    while high == 0 or high - low > max(1, low // _FINE):
        size = (low + high) // 2 if high else 2 * low
        try:
            best, low = planned(size), size
        except StageError as error:
            refusal, high = str(error), size
    return Limit(low, *best, refusal)


def check(number: int, folder: Path) -> str:
    """Build number `number`; AssertionError or StageError if it does not link."""
    board = load_board(BOARDS[number % 3])
    grow = (with_map, with_dense)[number // 3 % 2]
    weights = KERNELS[number // 6 % 2]
    found = limit_of(board, random_network(number), grow, weights)
    assert " of " in found.refusal and "over" in found.refusal, found.refusal
    write_sources(found.model, "limit", found.placement, folder / "generated")
    optimise = "Os" if weights == "small" else "O2"
    assert build_images(board, folder / "generated", optimise, folder).image.exists()
    return f"{board.name}, {grow.__name__}, {weights}: {found.size} links; then: {found.refusal}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=18)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    failed, start = 0, time.monotonic()
    for number in range(given.first, given.first + given.count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                line = check(number, Path(folder))
            except (AssertionError, StageError) as error:
                failed += 1
                line = f"FAILED: {error}"
        sys.stdout.write(f"{number}: {line} ({time.monotonic() - start:.0f} s)\n")
        sys.stdout.flush()
    sys.stdout.write(f"{given.count} networks at the limit of a board, {failed} did not link\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
