"""Commands on one network: a .tflite file that somebody brings along, or the backbone of an experiment.

The work is done by the functions that `tools` in pipeline.yaml names; here are only their arguments.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import (
    CORES,
    AsJson,
    ExperimentName,
    Jobs,
    ModelFile,
    Network,
    OneBoard,
    OutFile,
    Quick,
    Settings,
    Virtual,
    chosen,
    existing,
)
from pipeline.cli.output import print_answer
from pipeline.cli.runs import finished_run, is_model_file
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions, load_experiments
from pipeline.engine.cache import Entry
from pipeline.errors import ConfigError


def resources(
    experiment: ExperimentName, quick: Quick = False, settings: Settings = None, as_json: AsJson = False
) -> None:
    """Size, peak memory (exact and imprecise) and MACs of the unpruned network, beside the budget."""
    project = load_project(chosen.file)
    (loaded,) = load_experiments(project, [experiment], quick=quick, settings=settings or ())
    print_answer(project.tool("resources")(loaded.sections["network"], loaded.sections["budget"]), as_json)


def inspect(
    model: ModelFile,
    picture: Annotated[
        Path | None, typer.Option("--svg", help="draw memory over time into this file", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ops, size, MACs and memory of a .tflite: as stored, in the best order, and the lower bound."""
    print_answer(load_project(chosen.file).tool("inspect")(model, picture), as_json)


def optimize(model: ModelFile, out: OutFile, as_json: AsJson = False) -> None:
    """Re-order a .tflite and plan its arena so that it needs the least memory; outputs stay bit-identical."""
    print_answer(load_project(chosen.file).tool("optimize")(model, out), as_json)


def import_model(
    model: Annotated[
        Path, typer.Argument(help="a .keras or .h5 model, or a SavedModel folder", metavar="MODEL", callback=existing)
    ],
    data: Annotated[
        Path, typer.Option("--data", help="representative inputs, one per row", metavar="X.npy", callback=existing)
    ],
    out: OutFile,
    as_json: AsJson = False,
) -> None:
    """Turn a Keras model into a full-int8 .tflite (needs the extra `tf`)."""
    print_answer(load_project(chosen.file).tool("import")(model, data, out), as_json)


def compile_model(
    model: ModelFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="the folder to make", metavar="DIR")],
    weights: Annotated[str, typer.Option("--weights", help="fast (int16) or small (int8)", metavar="KIND")] = "fast",
    runtime: Annotated[
        str, typer.Option("--runtime", help="overlap (outputs over inputs, row-wise fusion) or classic", metavar="KIND")
    ] = "overlap",
    as_json: AsJson = False,
) -> None:
    """Turn a .tflite into a folder of C for any Cortex-M7 project, and for the host."""
    print_answer(load_project(chosen.file).tool("compile")(model, out, weights, runtime), as_json)


def measure(
    network: Network,
    board: OneBoard,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for samples.csv, layers.csv, ...", metavar="DIR")
    ] = None,
    virtual: Virtual = False,
    quick: Quick = False,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help="int8 inputs to run; random ones without it", metavar="X.npy")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="the class of each of them, for --accuracy", metavar="Y.npy")
    ] = None,
    accuracy: Annotated[
        int, typer.Option("--accuracy", min=0, help="send so many test inputs and report the device's accuracy")
    ] = 0,
    runs: Annotated[int, typer.Option("--runs", min=1, help="timed inferences")] = 30,
    settings: Settings = None,
    jobs: Jobs = CORES,
    as_json: AsJson = False,
) -> None:
    """Run a network on a board or its twin and check its outputs against TensorFlow Lite Micro."""
    asked = (f"measure.runs={runs}", f"measure.accuracy_inputs={accuracy}")
    options = RunOptions(boards=(board,), virtual=virtual, settings=(*asked, *(settings or ())))
    if is_model_file(network) and accuracy and labels is None:
        raise ConfigError("--accuracy: a .tflite file brings no test set; add --inputs X.npy and --labels Y.npy")
    if not is_model_file(network) and (inputs or labels):
        raise ConfigError(
            "--inputs, --labels: an experiment has its own test set; give a .tflite file or leave them out"
        )
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file, needed a folder; choose another name")
    runner, outcomes = finished_run(network, quick, options, jobs, inputs, labels)
    folders = {outcome.node.step: outcome.entry for outcome in outcomes}
    print_answer(runner.project.tool("measured")({step: entry.folder for step, entry in folders.items()}), as_json)
    if out is not None:
        _copy_files(folders["measure"], out)
    record = runner.record
    sys.stderr.write(f"every file is in {out or f'runs/{runner.experiment.run_name}/{record.id}'}/\n")


def add_to(app: typer.Typer) -> None:
    for function in (resources, inspect, optimize, measure):
        app.command()(function)
    app.command(name="import")(import_model)
    app.command(name="compile")(compile_model)


def _copy_files(entry: Entry, out: Path) -> None:
    """The files of a step, writable and by name."""
    out.mkdir(parents=True, exist_ok=True)
    for name in entry.files:
        shutil.copyfile(entry.folder / name, out / Path(name).name)
