"""Arguments and options that several commands share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipeline.api.execution import CORES as CORES
from pipeline.config import load_project
from pipeline.errors import ConfigError


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
MostJobs = Annotated[
    int | None, typer.Option("-j", "--jobs", min=1, help="independent steps at once; all that the executor can run")
]
ExecutorName = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="where steps run: here, or on the nodes of a Ray cluster")
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="of the cluster; else RAY_ADDRESS, or one made for this command", metavar="HOST:PORT"
    ),
]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where steps run: what the options of a run say of it, and how many at once."""

    options: dict[str, Any]
    jobs: int


def chosen_place(executor: str, address: str | None, jobs: int | None, report: Callable[[str], None]) -> Place:
    """What --executor and --address ask for."""
    if executor == "local":
        if address is not None:
            raise ConfigError(f"--address {address}: belongs to --executor ray; add that, or leave the address out")
        return Place({}, jobs or CORES)
    from pipeline.cluster.connection import Cluster
    from pipeline.cluster.executor import RayExecutor

    cluster = Cluster(address)
    runs_there = RayExecutor(cluster, load_project(chosen.file), report)
    return Place({"executor": runs_there, "attached": cluster.boards}, jobs or cluster.width())
