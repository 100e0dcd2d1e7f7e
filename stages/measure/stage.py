"""measure: run the flashed network on its board or twin and record what was seen, raw.

Reads   flash, twin, footprint, model (.tflite), golden (inputs and TFLM's outputs); features and dataset (.json) for
        accuracy on the device, front end and stream
Writes  samples.csv (one row per timed inference), layers.csv (one row per op), outputs.npz, device.json,
        accuracy_device.json, power.npz (traces of the energy)
Fails   StageError at the first output byte that differs from the golden one, at features too far from the host's, at a
        stream unlike its reference; link errors from hil

On the twin instructions are counted exactly. Cycles are modelled for twin and board; without a C compiler on the host
their columns stay empty. On a board cycles and latency are measured beside that, and energy where bench.yaml ties an
instrument to it; a twin's energy is simulated and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.stage import Config, Progress, Target, read_json, stage, write_json
from pipeline.units import Seconds


class MeasureConfig(Config):
    """How much to measure."""

    runs: int = Field(default=30, ge=1)  # the paper's number of measurements behind a mean and 2 sigma
    warmup: int = Field(default=3, ge=0)  # inferences before the first sample: caches and branch predictors settle
    accuracy_inputs: int = Field(default=0, ge=0)  # test inputs for accuracy on the device: 60 ms each on a twin
    stream_words: int = Field(default=20, ge=0, le=1000)  # of a kws_stream firmware: a minute, three seconds a word
    # auto: by the instrument that bench.yaml ties to the board, simulated beside a twin; required: an error without it
    energy: Literal["auto", "required", "off"] = "auto"
    bench: Path = Path("bench.yaml")  # seen from where the command runs; it need not exist
    baud: int | None = Field(default=None, ge=9600)  # a faster serial rate for a board, where its firmware agrees
    lock_wait: Seconds = 600.0  # for another job that works with the board or the instrument


@dataclass(frozen=True, kw_only=True)
class Measured:
    samples: Path  # samples.csv
    device_layers: Path  # layers.csv
    outputs: Path  # outputs.npz: inputs, outputs
    device: Path  # device.json
    device_accuracy: Path  # accuracy_device.json
    power: Path  # power.npz


@stage(
    "measure",
    touches_hardware=True,
    packages=("pyserial", "numpy", "capstone", "pyelftools", "tflite-micro", "torch", "pyvisa", "pyvisa-py"),
    twin_programs=("qemu-system-arm",),
    # gcc builds the profiler: without it there are instructions but no modelled cycles. espeak-ng speaks for streams.
    optional_programs=("gcc", "espeak-ng"),
    sources=("boards/{board}", "hil/virtual/plugin", "data/manifests/builtin_keywords.yaml"),
)
def run(
    flash: Path,
    twin: Path,
    footprint: Path,
    model: Path,
    golden: Path,
    features: Path,
    dataset: Path | None,
    *,
    config: MeasureConfig,
    target: Target,
    experiment: str,
    out_dir: Path,
    progress: Progress,
) -> Measured:
    from boards import load_board
    from stages.graph.memory.resources import graph_macs
    from stages.graph.simplify.simplification import simplify
    from stages.graph.tflite.reader import read_tflite
    from stages.measure.accuracy import NOT_MEASURED, choose_inputs, measure_accuracy
    from stages.measure.energy import measure_energy, write_power
    from stages.measure.golden import read_golden, write_outputs
    from stages.measure.input_form import input_form
    from stages.measure.modelled import profile_network
    from stages.measure.rows import audio_figures, device_record, layer_rows, write_layers, write_samples
    from stages.measure.session import BoardAccess, check_clock, measure_device, open_link
    from stages.measure.stack_check import check_stack

    built, flashed = read_json(footprint), read_json(flash)
    board = load_board(target.board).at_clock(built["link"]["clock_hz"])
    graph = read_tflite(model)
    form = input_form(built, graph)
    expected = read_golden(golden, form.sent)
    on_device = simplify(graph)  # what firmware compiled
    macs = graph_macs(graph), graph_macs(on_device)
    accuracy, audio = NOT_MEASURED, None
    access = BoardAccess(wait_s=config.lock_wait, baud=config.baud, first_baud=built["link"]["baud"])
    with open_link(target, board, flashed, twin, access) as link:
        check_clock(link, board)
        ops, build_id = len(built["ops"]), flashed["build_id"]
        seen = measure_device(link, expected, ops, build_id, config.runs, config.warmup, progress)
        check_stack(seen.memory.stack_high_water_bytes, built, target.source)
        if config.accuracy_inputs:
            chosen = choose_inputs(features, graph, config.accuracy_inputs)
            accuracy = measure_accuracy(link.link, model.read_bytes(), graph, chosen, form, progress)
        if built["front_end"] is not None:
            from stages.measure.audio.session import measure_audio  # torch: only where there is audio

            settings = {} if dataset is None else read_json(dataset)
            audio = measure_audio(link, built["front_end"], settings, model, graph, config.stream_words, progress)
        clip = None if audio is None else audio.clip.tobytes()
        first_input = expected.bytes_of(0)
        board = board.told(seen.boot_lines)
        profile = profile_network(twin, first_input, board, clip)
        front_end, per_op = audio_figures(built["front_end"], audio, profile)
        link.link.load(first_input)
        energy = measure_energy(link, board, seen, per_op, config.bench, config.energy, config.lock_wait)
    layers = layer_rows(on_device, built["ops"], seen, per_op, front_end, board)
    record = device_record(target, board, seen, per_op, front_end, energy, macs, layers)
    record |= {"input_form": form.kind, "model_name": built["link"]["model_name"]}
    return Measured(
        samples=write_samples(out_dir / "samples.csv", experiment, target, seen, energy),
        device_layers=write_layers(out_dir / "layers.csv", layers),
        outputs=write_outputs(out_dir / "outputs.npz", expected, seen.outputs),
        device=write_json(out_dir / "device.json", record),
        device_accuracy=write_json(out_dir / "accuracy_device.json", accuracy),
        power=write_power(out_dir / "power.npz", energy),
    )
