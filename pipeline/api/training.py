"""An experiment -> what its trainings should be told, and what int8 costs it, by the project's own tools.

What the tools need of earlier steps is taken from the cache or made; the experiment itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline.api.execution import CORES, finished_run, setting_texts
from pipeline.api.project import AnyPath
from pipeline.config import PROJECT_FILE
from pipeline.engine.assembly import RunOptions
from pipeline.engine.runner import Runner, artifact_paths
from pipeline.errors import ConfigError
from pipeline.stage import Answer

Trained = Literal["prune", "qat"]
_BEFORE: Mapping[str, str] = {"prune": "prepare", "qat": "prune"}


def find_learning_rate(
    experiment: str,
    out: AnyPath,
    *,
    step: Trained = "prune",
    steps: int = 100,
    lowest: float = 1e-5,
    highest: float = 10.0,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    progress: bool = True,
    project: AnyPath = PROJECT_FILE,
) -> Answer:
    """Train for `steps` with a rate that grows from `lowest` to `highest`, and suggest one; files go to `out`."""
    if step not in _BEFORE:
        raise ConfigError(f"--step: found {step!r}, needed one of {', '.join(_BEFORE)}")
    runner, artifacts = _made(experiment, _BEFORE[step], quick, set, progress, project)
    tool = runner.project.tool("learning_rate")
    return tool(runner.experiment.sections, artifacts, step, steps, (lowest, highest), Path(out))


def sensitivity(
    experiment: str,
    out: AnyPath,
    *,
    samples: int = 1000,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    progress: bool = True,
    project: AnyPath = PROJECT_FILE,
) -> Answer:
    """What each layer's int8 grids cost on `samples` validation examples; files go to `out`."""
    runner, artifacts = _made(experiment, "qat", quick, set, progress, project)
    return runner.project.tool("sensitivity")(runner.experiment.sections, artifacts, samples, Path(out))


def _made(
    experiment: str, last: str, quick: bool, settings: Any, progress: bool, project: AnyPath
) -> tuple[Runner, dict[str, Path]]:
    """What the steps up to `last` make."""
    options = RunOptions(boards=(), virtual=True, settings=setting_texts(settings), until=last)
    runner, outcomes = finished_run(Path(project), experiment, quick, options, CORES, progress=progress)
    return runner, artifact_paths(outcomes)
