"""What row-wise fusion saves of the arena, and the cycles that it costs, on the twin.

    python -m tests.benchmarks.firmware.arena_table [--only NAME] [--csv FILE] [MODEL.tflite ...]

`classic`: the lower bound of any layout that holds every tensor whole, the smallest arena of earlier work. `plain`: the
arena with outputs over inputs, but without fusion; `fused` with it, and its share of the bound; `chains`: how many, of
how many ops. Cycles are zero-wait and of whole inferences; `more` is what fusion adds. Scratch memory of the kernels
comes on top of either arena. The networks have the shapes of those that they stand for and drawn weights; of MCUNet
only the kind (176x176, windows of 3, 5 and 7 in turn), as its description is not to be had here: its own file can be
named. Exit code 1 if MobileNet-v2 takes more than 35 % of its bound or 5 % more cycles (issue 20).
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from boards import load_board
from pipeline.stage import read_json
from stages.firmware.model_source import compile_model
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import Graph
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.measure.modelled import profile_network
from tests.benchmarks.subjects.benchmark_networks import mcunet_like, mobilenet_v2, unet_like, vgg_like

BOARD = "nucleo_h743zi2"  # with room for all of them
JUDGED = "MobileNet-v2 0.35, 144x144"
MOST_SHARE, MOST_CYCLES = 0.35, 0.05


@dataclass(frozen=True)
class Row:
    """A line of the table and of the CSV file."""

    network: str
    classic_bytes: int
    plain_bytes: int
    fused_bytes: int
    share: float
    chains: int
    fused_ops: int
    scratch_bytes: int
    cycles_plain: int
    cycles_fused: int
    more_cycles: float

    @property
    def is_missed(self) -> bool:
        return self.network == JUDGED and (self.share > MOST_SHARE or self.more_cycles > MOST_CYCLES)

    def __str__(self) -> str:
        return (
            f"{self.network:28} {self.classic_bytes:>9,} {self.plain_bytes:>9,} {self.fused_bytes:>9,} "
            f"{self.share:6.1%} {self.chains:>3} of {self.fused_ops:>2} {self.scratch_bytes:>7,} "
            f"{self.cycles_plain:>11,} {self.cycles_fused:>11,} {self.more_cycles:+6.1%}"
        )


_TITLE = (
    f"{'network':28} {'classic B':>9} {'plain B':>9} {'fused B':>9} {'share':>6} {'chains':>9} {'scratch':>7} "
    f"{'cycles':>11} {'fused':>11} {'more':>6}"
)


def cycles(graph: Graph, runtime: str, folder: Path) -> int:
    """Of one inference, zero wait; classic layouts have the same kernels as those with overlap alone."""
    folder.mkdir()
    model = folder / "model.tflite"
    model.write_bytes(write_tflite(graph, "arena"))
    config = FirmwareConfig.model_validate({"runtime": runtime})
    built = firmware.function(model, None, config=config, board=BOARD, out_dir=folder)
    values = np.random.default_rng(0).integers(-128, 128, graph.tensors[graph.inputs[0]].shape, dtype=np.int8)
    profile = profile_network(built.twin, values.tobytes(), load_board(BOARD))
    assert profile is not None, "cycles need a C compiler on the host"
    assert len(profile) == len(read_json(built.footprint)["ops"])
    return sum(op.cycles_zero_wait for op in profile)


def row(name: str, graph: Graph) -> Row:
    simplified = simplify(graph)
    classic = compile_model(simplified, weights="fast")
    plain = compile_model(simplified, weights="fast", runtime="overlap", chains=())
    fused = compile_model(simplified, weights="fast", runtime="overlap")
    chains = [call for call in fused.calls if call.parts]
    with tempfile.TemporaryDirectory() as folder:
        spent = [cycles(graph, runtime, Path(folder) / runtime) for runtime in ("classic", "overlap")]
    bound = classic.layout.lower_bound_bytes
    arena = fused.layout.arena_bytes
    return Row(
        *(name, bound, plain.layout.arena_bytes, arena, arena / bound),
        *(len(chains), sum(len(call.parts) for call in chains), fused.scratch_bytes),
        *(*spent, spent[1] / spent[0] - 1),
    )


def networks(files: list[Path]) -> Iterator[tuple[str, Graph]]:
    for path in files:
        yield path.stem, strip_float_edges(read_tflite(path)).graph
    if not files:
        yield JUDGED, mobilenet_v2(144)
        yield "MCUNet-like, 176x176", mcunet_like()
        yield "VGG-like, 96x96", vgg_like()
        yield "U-Net-like, 96x96", unet_like()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--only", help="networks whose name contains this")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    sys.stdout.write(_TITLE + "\n")
    rows = []
    for name, graph in networks(given.models):
        if given.only and given.only not in name:
            continue
        rows.append(row(name, graph))
        sys.stdout.write(f"{rows[-1]}\n")
        sys.stdout.flush()
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(one) for one in rows)
    return 1 if any(one.is_missed for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
