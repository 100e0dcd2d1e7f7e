"""What the firmware compiler makes of five networks: instructions counted on the twin, cycles modelled, flash and RAM.

    python -m tests.benchmarks.compiled_networks [--models FOLDER] [--csv FILE] [--layers]

`--models` is a folder with kws_ref_model.tflite and pretrainedResnet_quant.tflite (MLPerf Tiny); without it they are
left out. The other three have the shapes of their models and drawn weights. Cycles per MAC are relative to the MACs of
the network as stored, everything in an inference included. `mark` is the share of an inference in model_invoke itself,
outside of the kernels (firmware_memory counts the functions in which layers take turns, too). `bound` is what issue 7
allows `weights: small` in flash: weights in int8, biases and 20 KB for everything else; `left` is what remains of it,
for `fast` less than nothing. The peer's figures (TensorFlow Lite Micro with CMSIS-NN of 2026, the same twin and cycle
model) and the targets are those of issue 7; they are quoted, not measured here.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import capstone
import numpy as np
from elftools.elf.elffile import ELFFile

from boards import load_board
from hil.virtual.profiler import OpProfile
from pipeline.stage import read_json
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import Graph
from stages.graph.memory.resources import op_macs
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.measure.modelled import profile_network
from tests.benchmarks.subjects.benchmark_networks import anomaly_detector, mobilenet_v1, pruned_dscnn

BOARDS = ("nucleo_f767zi", "nucleo_h743zi2")
SMALL_BEYOND_BYTES = 20_000  # of flash that `weights: small` may take beside weights and biases


@dataclass(frozen=True)
class Network:
    """A network, what issue 7 wants of it and what it says of its peer."""

    name: str
    graph: Graph
    target: float  # zero-wait cycles per MAC, at most
    peer: float | None  # those of TensorFlow Lite Micro with CMSIS-NN


@dataclass(frozen=True)
class Row:
    """A line of the table and of the CSV file."""

    network: str
    weights: str
    macs: int
    macs_executed: int  # after exact simplification
    instructions: int
    instructions_per_mac: float
    cycles_per_mac_zero_wait: float
    target: float
    peer_cycles_per_mac: float | None
    cycles_per_mac_f767zi: float  # with line fills
    cycles_per_mac_h743zi2: float
    flash_bytes: int  # of the board that takes more
    weights_and_biases_bytes: int
    flash_beyond_bytes: int  # code, requantisation, parameters
    flash_bound_bytes: int  # of `weights: small`
    flash_left_bytes: int  # of the bound; below 0: what is beyond it
    arena_bytes: int
    ram_bytes: int
    bookkeeping_share: float


def networks(models: Path | None) -> Iterator[Network]:
    third_party = {"kws_ref_model": (0.85, 2.02), "pretrainedResnet_quant": (0.75, 1.73)}
    for name, (target, peer) in third_party.items():
        path = None if models is None else models / f"{name}.tflite"
        if path is None or not path.exists():
            sys.stderr.write(f"{name}: left out, not in the folder of --models\n")
            continue
        yield Network(name, strip_float_edges(read_tflite(path)).graph, target, peer)
    yield Network("mobilenet_v1_0.25_96", mobilenet_v1(), 0.95, 2.3)
    yield Network("kws_dscnn_s_pruned", pruned_dscnn(), 0.95, None)
    yield Network("anomaly_detector", anomaly_detector(), 1.0, 1.45)


@dataclass(frozen=True)
class Build:
    """A network built for a board and profiled on its twin."""

    footprint: dict[str, Any]
    profile: tuple[OpProfile, ...]
    bookkeeping_instructions: int


def build(network: Network, weights: str, board: str) -> Build:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.tflite"
        model.write_bytes(write_tflite(network.graph, network.name))
        config = FirmwareConfig.model_validate({"weights": weights})
        built: Firmware = firmware.function(model, None, config=config, board=board, out_dir=folder)
        shape = network.graph.tensors[network.graph.inputs[0]].shape
        x = np.random.default_rng(0).integers(-128, 128, shape, dtype=np.int8)
        profile = profile_network(built.twin, x.tobytes(), load_board(board))
        assert profile is not None, "cycles need a C compiler on the host"
        return Build(read_json(built.footprint), profile, _instructions_of(built.twin, "model_invoke"))


def _instructions_of(image: Path, function: str) -> int:
    """Of straight code, every one of which runs once: an upper bound on what it executes."""
    with image.open("rb") as stream:
        elf = ELFFile(stream)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(function)
        section = elf.get_section(symbol["st_shndx"])
        start = (symbol["st_value"] & ~1) - section["sh_addr"]
        code = section.data()[start : start + symbol["st_size"]]
    decoder = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
    return sum(1 for _ in decoder.disasm(code, 0))


def row(network: Network, weights: str) -> tuple[Row, Build]:
    found = {board: build(network, weights, board) for board in BOARDS}
    macs = _macs(network.graph)
    first = found[BOARDS[0]]
    instructions = sum(op.instructions for op in first.profile)
    filled = [sum(op.cycles_modelled for op in found[board].profile) / macs for board in BOARDS]
    constants = {i for op in network.graph.ops for i in network.graph.constants_of(op) if op.kind != "RESHAPE"}
    stored = sum(network.graph.tensors[index].nbytes for index in constants)
    flash = max(found[board].footprint["flash_bytes"] for board in BOARDS)
    return Row(
        network=network.name,
        weights=weights,
        macs=macs,
        macs_executed=_macs(simplify(network.graph)),
        instructions=instructions,
        instructions_per_mac=instructions / macs,
        cycles_per_mac_zero_wait=sum(op.cycles_zero_wait for op in first.profile) / macs,
        target=network.target,
        peer_cycles_per_mac=network.peer,
        cycles_per_mac_f767zi=filled[0],
        cycles_per_mac_h743zi2=filled[1],
        flash_bytes=flash,
        weights_and_biases_bytes=stored,
        flash_beyond_bytes=flash - stored,
        flash_bound_bytes=stored + SMALL_BEYOND_BYTES,
        flash_left_bytes=stored + SMALL_BEYOND_BYTES - flash,
        arena_bytes=first.footprint["arena_bytes"],
        ram_bytes=first.footprint["ram_bytes"],
        bookkeeping_share=first.bookkeeping_instructions / instructions,
    ), first


def _macs(graph: Graph) -> int:
    return sum(op_macs(graph, op) for op in graph.ops)


def _text(one: Row) -> str:
    peer = "   -" if one.peer_cycles_per_mac is None else f"{one.peer_cycles_per_mac:4.2f}"
    return (
        f"{one.network:24} {one.weights:5} {one.macs:>10,} {one.macs_executed:>10,} {one.instructions:>10,} "
        f"{one.instructions_per_mac:6.3f} {one.cycles_per_mac_zero_wait:6.3f} {one.target:6.2f} {peer} "
        f"{one.cycles_per_mac_f767zi:6.3f} {one.cycles_per_mac_h743zi2:6.3f} {one.flash_bytes:>8,} "
        f"{one.flash_beyond_bytes:>8,} {one.flash_bound_bytes:>8,} {one.flash_left_bytes:>8,} {one.arena_bytes:>7,} "
        f"{one.ram_bytes:>7,} {one.bookkeeping_share:6.2%}"
    )


def _layers(network: Network, built: Build) -> Iterator[str]:
    graph = simplify(network.graph)
    total = sum(op.cycles_zero_wait for op in built.profile)
    for kernel, seen in zip(built.footprint["ops"], built.profile, strict=True):
        ops = [graph.ops[number] for number in kernel["ops"]]  # several, where they are fused
        macs = sum(op_macs(graph, op) for op in ops)
        ratio = f"{seen.instructions / macs:6.3f} {seen.cycles_zero_wait / macs:6.3f}" if macs else f"{'-':>6} {'-':>6}"
        shape = "x".join(map(str, graph.tensors[ops[-1].outputs[0]].shape[1:]))
        yield (
            f"    {seen.index:3} {kernel['kind']:18} {kernel['kernel']:18} {shape:>12} {macs:>9,} "
            f"{seen.instructions:>9,} {seen.cycles_zero_wait:>9,} {ratio} {seen.cycles_zero_wait / total:6.1%}"
        )


_TITLE = (
    f"{'network':24} {'':5} {'MACs':>10} {'executed':>10} {'instr.':>10} {'i/MAC':>6} {'c/MAC':>6} {'target':>6} peer "
    f"{'F767':>6} {'H743':>6} {'flash B':>8} {'beyond':>8} {'bound':>8} {'left':>8} {'arena':>7} {'RAM B':>7} "
    f"{'mark':>6}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--layers", action="store_true", help="a line for every operator, too")
    parser.add_argument("--only", help="networks whose name contains this")
    given = parser.parse_args()
    rows: list[Row] = []
    sys.stdout.write(_TITLE + "\n")
    for network in networks(given.models):
        if given.only and given.only not in network.name:
            continue
        for weights in ("fast", "small"):
            one, built = row(network, weights)
            rows.append(one)
            sys.stdout.write(_text(one) + "\n")
            if given.layers:
                sys.stdout.write("\n".join(_layers(network, built)) + "\n")
            sys.stdout.flush()
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(one) for one in rows)
    missed = [one.network for one in rows if one.weights == "fast" and one.cycles_per_mac_zero_wait > one.target]
    missed += [one.network for one in rows if one.weights == "small" and one.flash_left_bytes < 0]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
