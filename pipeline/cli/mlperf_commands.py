"""MLPerf Tiny, from image to checked submission folder; one network at several core clocks."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.api.clocks import clocks as study_clocks
from pipeline.api.mlperf import mlperf as run_task
from pipeline.cli.options import CORES, AsJson, Jobs, Network, OneBoard, Quick, Settings, Virtual, chosen
from pipeline.cli.output import print_answer
from pipeline.config import load_project

TaskName = Annotated[str, typer.Argument(help="KWS, IC, VWW, AD or SWW", metavar="TASK")]


def mlperf(
    task: TaskName,
    board: OneBoard,
    network: Annotated[
        str, typer.Option("--network", help="an int8 .tflite file, or an experiment", metavar="MODEL.tflite|EXPERIMENT")
    ] = "kws_dscnn_s",
    out: Annotated[Path, typer.Option("--out", help="folder for the submission", metavar="DIR")] = Path("mlperf"),
    virtual: Virtual = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="official inputs; without: the experiment's test set", metavar="DIR")
    ] = None,
    inputs: Annotated[int, typer.Option("--inputs", min=0, help="how many of them for accuracy; 0: all")] = 0,
    window_s: Annotated[float, typer.Option("--window", min=0.001, help="seconds; below 10 only to try things")] = 10.0,
    division: Annotated[str, typer.Option("--division", help="open, or closed for MLCommons' own network")] = "open",
    submitter: Annotated[str, typer.Option("--submitter", help="name of the folder and in the files")] = "submitter",
    no_energy: Annotated[bool, typer.Option("--no-energy", help="leave the energy runs out")] = False,
    quick: Quick = False,
    settings: Settings = None,
    jobs: Jobs = CORES,
    as_json: AsJson = False,
) -> None:
    """Run a task of MLPerf Tiny (performance, accuracy, energy) and lay out a submission; exit code 1 on a finding."""
    answer = run_task(
        task,
        network,
        board,
        out=out,
        virtual=virtual,
        data=data,
        inputs=inputs,
        window_s=window_s,
        division=division,
        submitter=submitter,
        energy=not no_energy,
        quick=quick,
        set=settings or (),
        jobs=jobs,
        command=shlex.join(["pipeline", *sys.argv[1:]]),
        project=chosen.file,
    )
    print_answer(answer, as_json)
    if not answer.record["ok"]:
        raise typer.Exit(1)


def mlperf_check(
    folder: Annotated[Path, typer.Argument(help="<division>/<submitter>, or a folder above", metavar="DIR")],
    as_json: AsJson = False,
) -> None:
    """Check a submission folder: what is missing, does not fit together, or is a twin's; exit code 1 on a finding."""
    answer = load_project(chosen.file).tool("mlperf_check")(folder)
    print_answer(answer, as_json)
    if not answer.record["ok"]:
        raise typer.Exit(1)


def clocks(
    network: Network,
    board: OneBoard,
    rate: Annotated[float, typer.Option("--rate", help="inferences a second, for the best clock", metavar="N")] = 1.0,
    only: Annotated[list[int] | None, typer.Option("--clock", help="MHz; all of the board's without it")] = None,
    out: Annotated[Path, typer.Option("--out", help="folder for clocks.csv and clocks.svg", metavar="DIR")] = Path(
        "clocks"
    ),
    virtual: Virtual = False,
    quick: Quick = False,
    settings: Settings = None,
    jobs: Jobs = CORES,
    as_json: AsJson = False,
) -> None:
    """Measure a network at several core clocks: latency, energy, and the best clock for a pace, idle included."""
    answer = study_clocks(
        network,
        board,
        inferences_per_s=rate,
        out=out,
        only_mhz=only or (),
        virtual=virtual,
        quick=quick,
        set=settings or (),
        jobs=jobs,
        project=chosen.file,
    )
    print_answer(answer, as_json)


def add_to(app: typer.Typer) -> None:
    app.command()(clocks)
    app.command()(mlperf)
    app.command(name="mlperf-check")(mlperf_check)
