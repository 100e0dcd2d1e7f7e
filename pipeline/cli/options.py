"""Arguments and options that several commands share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from pipeline.api.execution import CORES as CORES


@dataclasses.dataclass
class Chosen:
    """The options that stand before the command."""

    file: Path = Path("pipeline.yaml")
    debug: bool = False


chosen = Chosen()


ExperimentName = Annotated[str, typer.Argument(help="an experiment of pipeline.yaml; see: pipeline list")]
StepName = Annotated[str, typer.Argument(help="a step, such as qat")]
ModelFile = Annotated[Path, typer.Argument(help="an int8 .tflite file, or zoo:NAME", metavar="MODEL.tflite")]
Quick = Annotated[bool, typer.Option("--quick", help="built-in corpus, few epochs: minutes on two cores")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="override a value: --set prune.rate=0.1", metavar="A.B=V")
]
Boards = Annotated[
    list[str] | None,
    typer.Option("--board", help="this board only; it must be attached unless --virtual", metavar="NAME"),
]
Virtual = Annotated[bool, typer.Option("--virtual", help="use the virtual twins, also where a board is attached")]
Network = Annotated[
    str, typer.Argument(help="an int8 .tflite file, zoo:NAME, or an experiment", metavar="MODEL.tflite|EXPERIMENT")
]
OneBoard = Annotated[str, typer.Option("--board", help="where to run it; attached unless --virtual", metavar="NAME")]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable result on stdout")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="independent steps at once")]
OutFile = Annotated[Path, typer.Option("-o", "--out", help="the file to write", metavar="OUT.tflite")]
