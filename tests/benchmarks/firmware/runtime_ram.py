"""RAM of compiled networks beside TensorFlow Lite Micro's: arena, scratch and states against its arena.

    python -m tests.benchmarks.firmware.runtime_ram [MODEL.tflite ...]

The benchmark networks, those of the coverage test and given files, with `weights: fast` and `small`. Theirs is what the
runtime itself says it allocated on this machine (its structures have pointers of 64 bits here), and beside it the bound
for a device of 32 bits that the compiler keeps to (stages/graph/memory/runtime_bound.py). Exit code 1 if ours is more
than the first.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from stages.firmware.economy import compile_within
from stages.firmware.fast.dot import Weights
from stages.graph.judge.tflm import accepts, arena_limit_bytes, open_interpreter, printed
from stages.graph.memory.runtime_bound import runtime_bytes
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.planned_file import without_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.benchmarks.subjects import benchmark_networks
from tests.stages.firmware.coverage.networks import NETWORKS, coverage_network

_MADE = ("tiny_conv", "dscnn", "pruned_dscnn", "resnet_8", "anomaly_detector", "mobilenet_v1", "mobilenet_v2", "fomo")
_TOTAL = re.compile(r"Arena allocation total (\d+) bytes")
KERNELS: tuple[Weights, ...] = ("fast", "small")


def runtime_total_bytes(content: bytes) -> int:
    """What the runtime says it allocated for a file."""
    graph = read_tflite(content)
    if not accepts(content, graph):
        content = write_tflite(graph, "folded")
    found = _TOTAL.search(printed(open_interpreter(content, arena_limit_bytes(graph)).print_allocations))
    assert found
    return int(found[1])


def our_bytes(content: bytes, weights: Weights) -> int:
    """Of the network as the firmware step compiles it."""
    graph = read_tflite(content)
    return compile_within(simplify(graph), runtime_bytes(graph), weights=weights).working_bytes


def subjects(paths: list[Path]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        yield path.name, without_float_edges(path.read_bytes())
    for name in _MADE:
        yield name, write_tflite(getattr(benchmark_networks, name)(), "test")
    for name in NETWORKS:
        yield name, write_tflite(coverage_network(name), "test")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*")
    above = networks = 0
    for name, content in subjects(parser.parse_args().models):
        theirs, bound = runtime_total_bytes(content), runtime_bytes(read_tflite(content))
        ours = [our_bytes(content, weights) for weights in KERNELS]
        networks += 1
        above += max(ours) > theirs
        mark = "ABOVE" if max(ours) > theirs else "bound" if max(ours) > bound else ""
        sys.stdout.write(f"{name:<40} fast {ours[0]:>8,} small {ours[1]:>8,} TFLM {theirs:>8,} ({bound:,}) {mark}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{networks} networks, {above} above TensorFlow Lite Micro\n")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
