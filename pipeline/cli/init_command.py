"""`pipeline init`: a new project from flags or, on a terminal, from a few questions; nothing is asked of a script."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.api.project import open_project
from pipeline.cli.options import AsJson, chosen
from pipeline.cli.output import print_answer
from pipeline.config import Project
from pipeline.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_USUAL_BOARD = "nucleo_f767zi"


def init(
    name: Annotated[str | None, typer.Argument(help="of the experiment; the folder's name without it")] = None,
    images: Annotated[
        Path | None, typer.Option("--images", help="pictures: one sub-folder for each class", metavar="DIR")
    ] = None,
    sounds: Annotated[
        Path | None, typer.Option("--sounds", help=".wav files: one sub-folder for each class", metavar="DIR")
    ] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="your own: function of a file beside it", metavar="my_nets:make")
    ] = None,
    board: Annotated[list[str] | None, typer.Option("--board", help="where it will run", metavar="NAME")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a small commented project into this folder; existing files are never overwritten."""
    project = open_project(chosen.file)
    if sys.stdin.isatty() and not any((images, sounds, network, board)):
        name = name or typer.prompt("name of the experiment", default=_usual_name(project))
        images, sounds = _asked_data()
        own = typer.prompt("your own network, as file:function (- for the usual one)", default="-")
        network = None if own == "-" else own
        board = [typer.prompt("board", default=_USUAL_BOARD)]
    name = name or _usual_name(project)
    _refuse_name(project, name)
    if network is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", network):
        raise ConfigError(f"--network: found {network!r}, needed file:function, such as my_nets:make")
    boards = list(dict.fromkeys(board or [_USUAL_BOARD]))
    for each in boards:
        project.refuse_unknown_board("--board", each)
    print_answer(project.tool("init")(project.root, name, images, sounds, network, boards), as_json)


def _asked_data() -> tuple[Path | None, Path | None]:
    kinds = {"p": "pictures", "s": "sounds (.wav)", "n": "none yet, made-up keywords"}
    question = f"your data: {', '.join(f'{letter} = {what}' for letter, what in kinds.items())}"
    kind = ""
    while kind not in kinds:
        kind = str(typer.prompt(question, default="n")).strip().lower()[:1]
    if kind == "n":
        return None, None
    folder = Path()
    while folder == Path() or not folder.is_dir():
        folder = Path(typer.prompt("their folder, with one sub-folder for each class")).expanduser()
    return (folder, None) if kind == "p" else (None, folder)


def _usual_name(project: Project) -> str:
    """Of the folder, as far as it is a name."""
    return re.sub(r"\W+", "_", project.root.resolve().name).strip("_") or "mine"


def _refuse_name(project: Project, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name}: found no name, needed letters, digits, _ or -, such as: pipeline init mine")
    if name in project.experiments:
        raise ConfigError(f"{name}: is an experiment already (pipeline list); choose another name")


def add_to(app: typer.Typer) -> None:
    app.command()(init)
