"""`pipeline optimize` on every exported backbone: the arena of TensorFlow Lite Micro before and after, with equal bits.

    python -m tests.benchmarks.optimised_backbones [NAME ...] [--inputs 200] [--files MODEL.tflite ...]

Before: the exported graph in the order of the layers, planned by the runtime itself. Each network is checked as
`pipeline optimize` checks it (outputs equal bit for bit, head as planned, never larger), so a line is a proof.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from stages.export.quantise import int8_graph
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.tflite.writer import write_tflite
from stages.nets.config import FAMILIES, NetworkConfig
from stages.nets.registry import build
from stages.qat.fake_quant import FakeQuantNetwork
from stages.tools.optimisation import optimised
from tests.stages.export.backbones import _lively, _samples, _spread

_CALIBRATION_SAMPLES = 8


def exported(name: str) -> bytes:
    """A backbone with random weights as int8 .tflite, without a plan."""
    config = NetworkConfig(name=name)  # type: ignore[call-arg]
    torch.manual_seed(0)
    x = _samples(config, _CALIBRATION_SAMPLES, 0)
    fake = FakeQuantNetwork(graph_from_torch(_lively(build(config), x), config.input_shape))
    fake.calibrate(x)
    _spread(fake, x)
    fake.calibrate(x)
    return write_tflite(int8_graph(fake.quantised_graph()), name)


def row(name: str, content: bytes, inputs: int) -> str:
    """A line of the table; raises when anything is not as promised."""
    started = time.monotonic()
    found = optimised(content, inputs)
    saved = 1 - found.arena_bytes / found.arena_bytes_before
    figures = f"{found.arena_bytes_before:>10,} {found.arena_bytes:>10,} {saved:>7.1%}"
    answers = (found.best_order.proven_optimal, found.plan.layout.proven_optimal, found.is_reordered)
    words = " ".join(f"{'yes' if answer else 'no':>7}" for answer in answers)
    return f"{name:24} {len(found.graph.ops):>4} {figures} {words} {time.monotonic() - started:>6.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    titles = f"{'before B':>10} {'after B':>10} {'saved':>7} {'order*':>7} {'layout*':>7} {'moved':>7} {'s':>6}"
    sys.stdout.write(f"{'network':24} {'ops':>4} {titles}    * proven minimal; {given.inputs} inputs compared\n")
    for file in given.files:
        sys.stdout.write(row(file.stem, file.read_bytes(), given.inputs) + "\n")
    for name in given.names:
        sys.stdout.write(row(name, exported(name), given.inputs) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
