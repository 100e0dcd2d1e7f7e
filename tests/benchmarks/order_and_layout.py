"""How long the best order and the best layout take, and what they gain: a table, and a CSV if asked.

python -m tests.benchmarks.order_and_layout [--csv FILE] [--wirings N] [--only NAME] [MODEL.tflite ...]
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import yaml

from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import Graph
from stages.graph.judge.tflm import arena_limit_bytes, head_bytes, open_interpreter
from stages.graph.memory.arena_layout import arena_layout
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.packable_order import packable_order
from stages.graph.memory.resources import resources
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.benchmarks.subjects.stand_in import int8_stand_in
from tests.benchmarks.subjects.wirings import nasnet_like, random_wired

EXPERIMENTS = Path(__file__).parents[2] / "pipeline.yaml"
REPEATS = 5


@dataclass(frozen=True)
class Row:
    """What is printed of a network: bytes, and milliseconds of processor time, in which other work does not count."""

    network: str
    ops: int
    first_ms: float  # preparation and solution
    next_ms: float  # the slowest of some further solutions, as the pruner asks for them
    states: int
    peak: int
    imprecise: int
    stored_order: int  # peak in the order in which the ops stood
    order_proven: bool
    layout: int
    lower_bound: int
    layout_proven: bool
    layout_ms: float
    tflm_head: int | None  # what TensorFlow Lite Micro's own planner needs for the file in its stored order
    tflm_head_best_order: int | None  # the same for the best order


def backbones() -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Each network of pipeline.yaml once, unpruned."""
    seen = set()
    for experiment in yaml.safe_load(EXPERIMENTS.read_text())["experiments"].values():
        config = NetworkConfig.model_validate(experiment["network"])
        name = f"{config.title} {'x'.join(map(str, config.input_shape))}"
        if name not in seen and config.name is not None:
            seen.add(name)
            yield name, lambda config=config: graph_from_torch(build(config), config.input_shape)


def measured(name: str, graph: Graph) -> Row:
    gc.collect()
    gc.freeze()  # or a collection that falls into one of the calls goes through all objects of torch, too: 0.15 s
    started = time.process_time()
    problem = OrderProblem(graph)
    best = problem.solve()
    first_s = time.process_time() - started
    next_s = max(_seconds(problem.solve) for _ in range(REPEATS))
    started = time.process_time()
    ordered = graph.in_order(packable_order(problem, best).order)
    layout = arena_layout(ordered)
    layout_s = time.process_time() - started
    return Row(
        network=name,
        ops=len(graph.ops),
        first_ms=round(first_s * 1e3, 1),
        next_ms=round(next_s * 1e3, 1),
        states=best.states,
        peak=round(best.peak_bytes),
        imprecise=resources(graph).peak_bytes_imprecise,
        stored_order=round(problem.measure(range(len(graph.ops))).peak_bytes),
        order_proven=best.proven_optimal,
        layout=layout.arena_bytes,
        lower_bound=layout.lower_bound_bytes,
        layout_proven=layout.proven_optimal,
        layout_ms=round(layout_s * 1e3, 1),
        tflm_head=runtime_head(graph),
        tflm_head_best_order=runtime_head(ordered),
    )


def runtime_head(graph: Graph) -> int | None:
    """The arena head of TensorFlow Lite Micro for the network without a plan."""
    is_int8 = all(tensor.dtype != "float32" for tensor in graph.tensors)
    model = graph if is_int8 else int8_stand_in(graph)
    return head_bytes(open_interpreter(write_tflite(model, "benchmark"), arena_limit_bytes(model)))


def _seconds(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


def networks(wirings: int, models: list[Path]) -> Iterator[tuple[str, Callable[[], Graph]]]:
    yield from backbones()
    for cells in (2, 4, 6):
        yield f"NASNet-like, {cells} cells", lambda cells=cells: int8_stand_in(nasnet_like(cells, seed=cells))
    for seed in range(wirings):
        yield f"random-wired 32, seed {seed}", lambda seed=seed: int8_stand_in(random_wired(seed))
    for model in models:
        yield model.name, lambda model=model: read_tflite(model.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="write the table there as well")
    parser.add_argument("--wirings", type=int, default=10, help="how many random-wired networks")
    parser.add_argument("--only", default="", help="only networks whose name contains this")
    parser.add_argument("models", type=Path, nargs="*", help="further int8 networks")
    given = parser.parse_args()
    names = [field.name for field in fields(Row)]
    rows = []
    widths = [max(28, len(names[0])), *(max(9, len(name)) for name in names[1:])]
    _print(names, widths)
    for name, make in networks(given.wirings, given.models):
        if given.only in name:
            rows.append(measured(name, make()))
            _print(astuple(rows[-1]), widths)
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(astuple(row) for row in rows)


def _print(cells, widths: list[int]) -> None:
    line = "  ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
