"""Does this machine have the code, the tools and the data that a step's key stands for?"""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.engine.ingredients import ABSENT, differences
from pipeline.engine.source_notes import SourceNotes
from pipeline.engine.sources import SourceTree, imported_names
from pipeline.engine.tool_versions import package_version
from pipeline.engine.worker import Job
from pipeline.errors import PipelineError
from pipeline.stage import Stage

_trees: dict[tuple[Path, ...], SourceTree] = {}


def differences_here(made_of: Mapping[str, Any], job: Job) -> list[str]:
    """'version.gcc: 12.2 -> 13.1' for each ingredient that is another one on this machine."""
    asked = {name: made_of[name] for name in made_of if name.startswith(("code.", "file.", "version.", "outside."))}
    try:
        found = _found(asked, job)
    except (ImportError, PipelineError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    return differences(asked, found)


def _found(asked: Mapping[str, Any], job: Job) -> dict[str, Any]:
    roots = tuple(dict.fromkeys((job.root.resolve(), Path(__file__).resolve().parents[2])))
    if roots not in _trees:
        _trees[roots] = SourceTree(roots, SourceNotes(Path("/dev/null"), imported_names))
    code = _trees[roots] = _trees[roots].up_to_date()
    found: dict[str, Any] = {}
    for name in asked:
        kind, _, what = name.partition(".")
        if kind == "code" and (file := code.file_of(what)) is not None:
            found[name] = code.notes.of(file)[0]
        elif kind == "file":
            place = next((root / what for root in roots if (root / what).exists()), None)
            found |= {} if place is None else {name: code.tree_digest(place)}
        elif name == "version.python":
            found[name] = platform.python_version()
    if str(job.root) not in sys.path:
        sys.path.insert(0, str(job.root))
    stage: Stage = importlib.import_module(job.module).run
    found |= {f"version.{package}": package_version(package) or ABSENT for package in stage.packages}
    for program in (*stage.programs_for(job.target), *stage.optional_programs):
        found[f"version.{program}"] = code.version_of(program) or ABSENT
    if any(name.startswith("outside.") for name in asked):
        for section, model in stage.sections.items():
            for key, digest in model.model_validate(job.sections[section]).outside().items():
                found[f"outside.{section}.{key}"] = digest
    return found
