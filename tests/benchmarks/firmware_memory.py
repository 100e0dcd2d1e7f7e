"""What the firmware's arena takes with and without overlap, and what an inference spends outside of its kernels.

    python -m tests.benchmarks.firmware_memory [--csv FILE] [--no-twin] [MODEL.tflite ...]

Without files: a dense MobileNet-v1 0.25 at 96x96 with drawn weights. Arena: bytes of the classic layout and its lower
bound, of the layout with overlap alone, of the one with row-wise fusion too and its lower bound, and what that
saves. Twin (one inference in QEMU): instructions in all, those outside of kernels (the copy of the input, the calls
between the layers, the fused layers), the stack's bound and how deep it went.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from bisect import bisect_right
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from boards import load_board
from hil.virtual.profiler import MARKS, build_plugin, host_compiler, last_pass, model_options
from hil.virtual.program import read_program
from hil.virtual.twin import Twin
from stages.firmware.memory.stack_depth import stack_bound
from stages.firmware.model_source import CompiledModel, compile_model
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import Graph
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.measure.modelled import memory_model
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.benchmarks.subjects.stand_in import int8_stand_in

BOARD = "nucleo_h743zi2"
BETWEEN = ("model_invoke", "prof_", "fused_", "band_")  # functions that are no kernels
_RUNS = 50


@dataclass(frozen=True)
class Row:
    """One network."""

    network: str
    classic: int
    classic_bound: int
    overlap: int
    chains: int
    fused: int  # with row-wise fusion, too
    fused_bound: int
    saved_percent: float
    portable_fused: int
    scratch: int
    instructions: int | None = None
    outside_kernels: int | None = None
    outside_percent: float | None = None
    stack_bound: int | None = None
    stack_deepest: int | None = None


def mobilenet() -> Graph:
    config = NetworkConfig(name="mobilenet_v1")
    return int8_stand_in(graph_from_torch(build(config), config.input_shape))


def row(name: str, graph: Graph, *, on_twin: bool) -> Row:
    classic = compile_model(graph, weights="fast")
    overlap = compile_model(graph, weights="fast", runtime="overlap", chains=())
    fused = compile_model(graph, weights="fast", runtime="overlap")
    portable = compile_model(graph, runtime="overlap")
    found = (
        *(name, classic.layout.arena_bytes, classic.layout.lower_bound_bytes),
        *(overlap.layout.arena_bytes, sum(bool(call.parts) for call in fused.calls)),
        *(fused.layout.arena_bytes, fused.layout.lower_bound_bytes),
        100 * (1 - fused.layout.arena_bytes / classic.layout.lower_bound_bytes),
        *(portable.layout.arena_bytes, fused.scratch_bytes),
    )
    return Row(*found, *(_on_twin(graph, fused) if on_twin else ()))


def _on_twin(graph: Graph, model: CompiledModel) -> tuple[int, int, float, int, int]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "model.tflite").write_bytes(write_tflite(graph, "benchmark"))
        built = firmware.function(folder / "model.tflite", None, config=FirmwareConfig(), board=BOARD, out_dir=folder)
        values = np.random.default_rng(0).integers(-128, 128, model.input_bytes, dtype=np.int8).tobytes()
        kernels = _kernel_instructions(built.twin, values, folder)
        with Twin(built.twin, name="memory") as twin:
            twin.link.load(values)
            laps = [twin.link.infer(runs, 0).elapsed_us for runs in (_RUNS, 2 * _RUNS)]
            deepest = twin.link.memory().stack_high_water_bytes
        clock_mhz = load_board(BOARD).clock_hz / 1e6
        total = round((laps[1] - laps[0]) * clock_mhz / _RUNS)
        bound = stack_bound(built.twin, model.assembly).main_bytes
    return total, total - kernels, 100 * (total - kernels) / total, bound, deepest


def _kernel_instructions(image: Path, values: bytes, folder: Path) -> int:
    """Instructions of one inference in functions that `model_invoke` calls."""
    compiler = host_compiler()
    assert compiler, "needs a C compiler for the profiler"
    program = read_program(image)
    marks, record = program.objects[MARKS], folder / "profile.txt"
    options = [f"out={record}", f"marks={marks.address}:{marks.size_bytes // 4}"]
    options += model_options(memory_model(load_board(BOARD), program))
    argument = ",".join([str(build_plugin(folder, compiler)), *options])
    with Twin(image, name="memory", counting=False, arguments=("-plugin", argument)) as twin:
        twin.link.load(values)
        twin.link.infer(1, 1)
    owner = _owners(image)
    edges = [edge for region in last_pass(record.read_text().splitlines()) for edge in region.edges]
    return sum(edge.to[1] * edge.times for edge in edges if not owner(edge.to[0]).startswith(BETWEEN))


def _owners(image: Path):
    with image.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".symtab").iter_symbols()
        named = sorted((s["st_value"] & ~1, s.name) for s in symbols if s["st_info"]["type"] == "STT_FUNC")
    starts = [start for start, _ in named]
    return lambda address: named[bisect_right(starts, address) - 1][1]


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("models", nargs="*", type=Path)
    arguments.add_argument("--csv", type=Path)
    arguments.add_argument("--no-twin", action="store_true")
    chosen = arguments.parse_args()
    graphs = [(model.stem, strip_float_edges(read_tflite(model)).graph) for model in chosen.models]
    graphs.append(("mobilenet_v1 0.25 96x96", mobilenet()))
    names = [field.name for field in fields(Row)]
    rows = [astuple(row(name, graph, on_twin=not chosen.no_twin)) for name, graph in graphs]
    for found in rows:
        for name, value in zip(names, found, strict=True):
            sys.stdout.write(f"{name:<18}{_shown(value):>24}\n")
        sys.stdout.write("\n")
    if chosen.csv:
        with chosen.csv.open("w", newline="") as stream:
            csv.writer(stream).writerows([names, *rows])


if __name__ == "__main__":
    main()
