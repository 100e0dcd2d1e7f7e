"""measure: run the flashed network on its board or twin and record what was seen, raw.

Reads   flash, twin, footprint, model (.tflite), golden (inputs and TFLM's outputs)
Writes  samples.csv (one row per timed inference), layers.csv (one row per op), outputs.npz, device.json
Fails   StageError at the first output byte that differs from the golden one; link errors from hil

On the twin instructions are counted exactly, and cycles are modelled; without a C compiler on the host their columns
stay empty. On a board cycles and latency are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from pipeline.stage import Config, Progress, Target, read_json, stage, write_json


class MeasureConfig(Config):
    """How much to measure."""

    runs: int = Field(default=30, ge=1)  # the paper's number of measurements behind a mean and 2 sigma
    warmup: int = Field(default=3, ge=0)  # inferences before the first sample: caches and branch predictors settle


@dataclass(frozen=True, kw_only=True)
class Measured:
    samples: Path  # samples.csv
    device_layers: Path  # layers.csv
    outputs: Path  # outputs.npz: inputs, outputs
    device: Path  # device.json


@stage(
    "measure",
    touches_hardware=True,
    packages=("pyserial", "numpy", "capstone", "pyelftools"),
    twin_programs=("qemu-system-arm",),
    optional_programs=("gcc",),  # builds the profiler; without it there are instructions but no modelled cycles
    sources=("boards/{board}/board.yaml", "hil/virtual/plugin"),
)
def run(
    flash: Path,
    twin: Path,
    footprint: Path,
    model: Path,
    golden: Path,
    *,
    config: MeasureConfig,
    target: Target,
    experiment: str,
    out_dir: Path,
    progress: Progress,
) -> Measured:
    from boards import load_board
    from stages.graph.tflite_reader import read_tflite
    from stages.measure.golden import read_golden, write_outputs
    from stages.measure.modelled import profile_network
    from stages.measure.rows import device_record, write_layers, write_samples
    from stages.measure.session import measure_device, open_link

    board, built, flashed = load_board(target.board), read_json(footprint), read_json(flash)
    expected, graph = read_golden(golden), read_tflite(model)
    with open_link(target, board, flashed, twin) as link:
        seen = measure_device(link, expected, len(graph.ops), flashed["build_id"], config.runs, config.warmup, progress)
    profile = profile_network(twin, expected.inputs[0].tobytes(), board) if target.source == "virtual" else None
    return Measured(
        samples=write_samples(out_dir / "samples.csv", experiment, target, seen),
        device_layers=write_layers(out_dir / "layers.csv", graph, built["ops"], seen, profile),
        outputs=write_outputs(out_dir / "outputs.npz", expected.inputs, seen.outputs),
        device=write_json(out_dir / "device.json", device_record(target, board, seen, profile)),
    )
