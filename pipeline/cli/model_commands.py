"""Commands on one network: a .tflite file that somebody brings along, or the backbone of an experiment.

The work is done by pipeline.api; here are only the arguments and what is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from pipeline.api import networks as api
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
)
from pipeline.cli.output import print_answer
from pipeline.config import load_project
from pipeline.engine.recording import run_store
from pipeline.errors import ConfigError


def resources(
    experiment: ExperimentName,
    board: Annotated[
        str | None, typer.Option("--board", help="and ms, mJ, flash and RAM of its firmware there", metavar="NAME")
    ] = None,
    quick: Quick = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Size, peak memory (exact and imprecise) and MACs of the unpruned network, beside the budget."""
    print_answer(api.resources(experiment, board=board, quick=quick, set=settings or (), project=chosen.file), as_json)


def fit(
    experiment: ExperimentName,
    board: Annotated[str, typer.Option("--board", help="the board it is to fit", metavar="NAME")],
    quick: Quick = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """The smallest budgets that can be met on a board, and the widest network that fits it; nothing is trained."""
    print_answer(api.fit(experiment, board, quick=quick, set=settings or (), project=chosen.file), as_json)


def inspect(
    model: ModelFile,
    picture: Annotated[
        Path | None, typer.Option("--svg", help="draw memory over time into this file", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ops, size, MACs and memory of a .tflite: as stored, in the best order, and the lower bound."""
    print_answer(api.inspect(model, svg=picture, project=chosen.file), as_json)


def optimize(model: ModelFile, out: OutFile, as_json: AsJson = False) -> None:
    """Re-order a .tflite and plan its arena so that it needs the least memory; outputs stay bit-identical."""
    print_answer(api.optimize(model, out, project=chosen.file), as_json)


def evaluate(
    model: ModelFile,
    data: Annotated[str, typer.Option("--data", help="such as speech_commands_v0.01 or cifar10", metavar="SOURCE")],
    split: Annotated[str, typer.Option("--split", help="train, validation or test", metavar="SPLIT")] = "test",
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for confusion.csv, predictions.csv, ...", metavar="DIR")
    ] = None,
    task: Annotated[
        Path | None, typer.Option("--task", help="for a file that has no front end in it", metavar="dataset.json")
    ] = None,
    mean: Annotated[str | None, typer.Option("--mean", help="likewise, of pictures", metavar="R,G,B")] = None,
    std: Annotated[str | None, typer.Option("--std", help="likewise", metavar="R,G,B")] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Accuracy of an int8 .tflite on a data set, with TensorFlow Lite Micro's arithmetic on all cores."""
    numbers = [_numbers(option, text) for option, text in (("--mean", mean), ("--std", std))]
    found = api.evaluate(
        model,
        data,
        split=split,
        out=out,
        task=task,
        mean=numbers[0],
        std=numbers[1],
        set=settings or (),
        project=chosen.file,
    )
    print_answer(found, as_json)


def zoo(
    page: Annotated[bool, typer.Option("--page", help="write data/zoo/README.md anew from the cards")] = False,
    as_json: AsJson = False,
) -> None:
    """List the published networks, each held against its card; exit code 1 if one is not what its card says."""
    project = load_project(chosen.file)
    answer = project.tool("zoo")(project.root, page)
    print_answer(answer, as_json)
    if answer.record["refused"]:
        raise typer.Exit(1)


def publish(
    run: Annotated[str, typer.Argument(help="id, latest, latest~1, EXPERIMENT/latest or folder", metavar="RUN")],
    name: Annotated[str | None, typer.Option("--name", help="instead of its experiment's", metavar="NAME")] = None,
    note: Annotated[
        str | None, typer.Option("--note", help="for its card: what the command does not say", metavar="TEXT")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put the network of a finished run into data/zoo with a card: how it was made, how good it is, how to check it."""
    project = load_project(chosen.file)
    found = run_store(project).find(run)
    print_answer(project.tool("publish")(found.folder, found.facts, name, project.root, note), as_json)


def _numbers(option: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text}: is no list of numbers, needed such as 125.3,123.0,113.9") from None


def import_model(
    model: Annotated[
        Path, typer.Argument(help="a .keras or .h5 model, a SavedModel folder, or a float .tflite", metavar="MODEL")
    ],
    data: Annotated[Path, typer.Option("--data", help="representative inputs, one per row", metavar="X.npy")],
    out: OutFile,
    as_json: AsJson = False,
) -> None:
    """Turn a Keras model (needs the extra `tf`) or a float .tflite (needs `litert`) into a full-int8 .tflite."""
    print_answer(api.import_keras(model, data, out, project=chosen.file), as_json)


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
    kinds = cast(api.Weights, weights), cast(api.Runtime, runtime)  # the tool itself refuses others
    print_answer(api.compile(model, out, weights=kinds[0], runtime=kinds[1], project=chosen.file), as_json)


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
    found = api.measure(
        network,
        board,
        virtual=virtual,
        out=out,
        inputs=inputs,
        labels=labels,
        accuracy=accuracy,
        runs=runs,
        quick=quick,
        set=settings or (),
        jobs=jobs,
        project=chosen.file,
    )
    print_answer(found, as_json)
    sys.stderr.write(f"every file is in {out or found.run_folder}/\n")


def add_to(app: typer.Typer) -> None:
    for function in (resources, fit, inspect, optimize, evaluate, measure, zoo, publish):
        app.command()(function)
    app.command(name="import")(import_model)
    app.command(name="compile")(compile_model)
