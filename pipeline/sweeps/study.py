"""An entry of `studies` in pipeline.yaml -> the sweep behind it, and what came of it -> the tool that tabulates it.

    studies:
      rates:
        title: How fast to prune
        experiment: kws_dscnn_s
        until: prune                     # no step beyond this one
        set: {prune.epochs: 5}           # for all
        vary:                            # every combination of these
          method: {uniform: {prune.method: uniform}, pruned: {}}   # levels by name, each with its settings
          prune.rate: [2, 4, 8]                                    # a list: its values
        seeds: 0..2
        quick: {set: {prune.epochs: 1}, seeds: 0..1}   # laid over it with --quick
        show: {...}                      # for the tool `study`

A level may name another `experiment`, too. What is to be seen in the figures (`show`) the engine does not know.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from pipeline.config import Project, load_section
from pipeline.errors import ConfigError
from pipeline.stage import Answer, Config
from pipeline.sweeps.axes import MOST_POINTS, Choices, axis_of, whole_numbers
from pipeline.sweeps.results import PointResult
from pipeline.sweeps.spec import Combination, Point, Spec
from pipeline.sweeps.sweep import Sweep

Levels = Mapping[str, Mapping[str, Any]]  # name -> settings


class _Asked(Config):
    set: dict[str, Any] = {}
    vary: dict[str, Any] = {}
    seeds: int | str | list[int] | None = None


class _Quick(_Asked):
    """What --quick changes; a factor of `vary` is replaced whole."""


class StudyConfig(_Asked):
    """An entry of `studies`."""

    title: str
    question: str = ""
    experiment: str
    until: str | None = None
    vary: dict[str, Any] = Field(min_length=1)
    show: dict[str, Any] = {}
    quick: _Quick = _Quick()


def study_config(project: Project, name: str) -> StudyConfig:
    if name not in project.studies:
        known = ", ".join(project.studies) or "none"
        raise ConfigError(f"{project.file.name}: studies.{name}: no such study; known are {known}")
    config = load_section(project, f"studies.{name}", StudyConfig)
    assert isinstance(config, StudyConfig)
    return config


def study_spec(
    project: Project,
    name: str,
    *,
    quick: bool = False,
    settings: Sequence[str] = (),
    seeds: str | None = None,
    experiment: str | None = None,
) -> Spec:
    """The points of a study; `settings` are for all of them, `experiment` is another one to study."""
    config = study_config(project, name)
    overlay = config.quick if quick else _Quick()
    asked = config.seeds if overlay.seeds is None else overlay.seeds
    asked = asked if seeds is None else seeds
    common = {**config.set, **overlay.set}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting}: found no key=value, needed such as --set data.root=FOLDER")
        common[key.strip()] = value
    where = f"{project.file.name}: studies.{name}.vary"
    factors = {factor: _levels(f"{where}.{factor}", given) for factor, given in {**config.vary, **overlay.vary}.items()}
    chosen = [_combination(experiment or config.experiment, common, dict(picked)) for picked in _product(factors)]
    spec = Spec(
        name=f"study-{name}{'-quick' if quick else ''}",
        experiments=tuple(dict.fromkeys(one.experiment for one in chosen)),
        axes={},
        seeds=(None,) if asked is None else whole_numbers("--seeds", asked),
        seed_keys=project.seeds,
        sample=None,
        sample_seed=0,
        quick=quick,
        combinations=tuple(chosen),
        until=config.until,
    )
    if len(chosen) * len(spec.seeds) > MOST_POINTS:
        raise ConfigError(f"{where}: {len(chosen) * len(spec.seeds):,} points, needed at most {MOST_POINTS:,}")
    return spec if experiment is None else replace(spec, name=f"{spec.name}-{experiment}")


def tabulated(sweep: Sweep, name: str, results: Mapping[Point, PointResult]) -> Answer:
    """Table, charts and words of a study, in its folder: those of the points that have ended."""
    project = sweep.workshop.project
    config = study_config(project, name)
    points = [_told(sweep, point, results.get(point)) for point in sweep.points]
    about = {"name": name, "title": config.title, "question": config.question, "quick": sweep.spec.quick}
    return project.tool("study")(about, config.show, points, sweep.folder.path)


def _told(sweep: Sweep, point: Point, result: PointResult | None) -> dict[str, Any]:
    folder: Path | None = None if result is None else sweep.run_folder(result)
    return {
        **{"experiment": point.experiment, "levels": dict(point.levels), "seed": point.seed},
        **{"settings": dict(point.settings), "state": "open" if result is None else result.state},
        **{"error": result and result.error, "folder": folder, "rows": () if result is None else result.rows},
    }


def _levels(where: str, given: Any) -> Levels:
    if isinstance(given, Mapping) and given:
        for level, settings in given.items():
            if not isinstance(settings, Mapping):
                raise ConfigError(f"{where}.{level}: found {settings!r}, needed settings such as {{prune.rate: 2}}")
        return {str(level): settings for level, settings in given.items()}
    axis = axis_of(where, given)
    if not isinstance(axis, Choices):
        raise ConfigError(f"{where}: found a span of numbers, needed a list of values")
    key = where.rpartition(".vary.")[2]
    return {value: {key: value} for value in axis.values}


def _product(factors: Mapping[str, Levels]) -> list[tuple[tuple[str, tuple[str, Mapping[str, Any]]], ...]]:
    named = [[(factor, level) for level in levels.items()] for factor, levels in factors.items()]
    return list(itertools.product(*named))


def _combination(
    experiment: str, common: Mapping[str, Any], picked: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> Combination:
    settings = dict(common)
    for _, of_level in picked.values():
        settings |= of_level
    experiment = str(settings.pop("experiment", experiment))
    texts = [(key, axis_of(key, [value]).values[0]) for key, value in settings.items()]  # type: ignore[union-attr]
    return Combination(experiment, tuple((factor, level) for factor, (level, _) in picked.items()), tuple(texts))
