"""A project's file -> modules that can be imported: the user's beside it, and ours under their own names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from pipeline.config import PROJECT_FILE, Project, load_project
from pipeline.errors import ConfigError

AnyPath = str | Path
ZOO = "zoo:"  # before the name of a published network

_HOME = Path(__file__).resolve().parents[2]  # of all our packages
_PACKAGES = ("boards", "data", "hil", "stages")


def open_project(file: AnyPath = PROJECT_FILE) -> Project:
    """What the file says, with its folder importable; a folder without a file has the built-in experiments."""
    make_importable(Path(file))
    return load_project(Path(file))


def existing(file: AnyPath) -> Path:
    """The file itself, if it is there: a misspelt path is a mistake of usage."""
    if not Path(file).exists():
        raise ConfigError(f"{file}: no such file; check the path")
    return Path(file)


def model_file(project: Project, model: AnyPath) -> Path:
    """A .tflite file, or the published one that `zoo:NAME` stands for, held against its card."""
    name = str(model)
    if not name.startswith(ZOO):
        return existing(model)
    found: Path = project.function("zoo_model")(name.removeprefix(ZOO), project.root)
    return found


def make_importable(file: Path) -> None:
    """Let Python find what lies beside the project's file; ConfigError if that hides a package of ours."""
    beside = str(file.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    if str(_HOME) not in sys.path:
        sys.path.append(str(_HOME))  # a folder `data` without Python in it is then no package
    _refuse_hidden_packages()


def _refuse_hidden_packages() -> None:
    """ConfigError if a file of the user's, or another distribution's, is imported in the place of one of our packages.

    They have common names because the repository's top level is their home, and editors and type checkers follow no
    mapping to a parent package that exists in the wheel alone.
    """
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        places = [*(found.submodule_search_locations or ()), *filter(None, [found.origin])] if found else []
        if _HOME / name not in [Path(str(place)).resolve() for place in places]:
            where = places[0] if places else "nothing"
            raise ConfigError(f"{where}: is imported as {name!r}, needed {_HOME / name}; rename it or work elsewhere")
