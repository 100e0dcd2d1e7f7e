"""Spans and choices -> points chosen by Optuna, a few at a time, each by what the ones before it reached.

The study lives in `sweeps/<name>/study.log`, to which lines are only appended: after a kill the same command goes on,
and asks the trials that were running again. A trial's values are means over its boards and seeds.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.engine.executor import Executor
from pipeline.errors import ConfigError
from pipeline.sweeps.axes import Axis, Choices, number_text
from pipeline.sweeps.results import PointResult
from pipeline.sweeps.spec import Point, Spec
from pipeline.sweeps.sweep import Sweep

_INTERRUPTED = "interrupted"  # mark of a trial that a kill left unfinished; it is asked again and counts once


@dataclass(frozen=True)
class Objective:
    """A column of the results, and where it should go."""

    column: str
    direction: Literal["maximize", "minimize"]


def objective_of(text: str) -> Objective:
    """'accuracy_int8:max'."""
    column, _, way = text.partition(":")
    if not column or way not in ("max", "min"):
        raise ConfigError(f"--objective {text}: needed a column and max or min, such as accuracy_int8:max")
    return Objective(column, "maximize" if way == "max" else "minimize")


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    results: Mapping[Point, PointResult]
    best: tuple[tuple[Point, tuple[float, ...]], ...]  # no other trial is better in every objective


def searched(
    sweep: Sweep, objectives: Sequence[Objective], trials: int, executor: Executor, jobs: int, seed: int
) -> Found:
    """Run points until `trials` have ended, in this process and those before it."""
    optuna = _optuna()
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(sweep.folder.path / "study.log"))
    )
    directions = [one.direction for one in objectives]
    study = optuna.create_study(study_name=sweep.spec.name, storage=storage, directions=directions, load_if_exists=True)
    if [way.name.lower() for way in study.directions] != directions:
        raise ConfigError(f"{sweep.folder.path}: holds a search for other objectives; give another --name")
    _ask_again(study, optuna)
    sweep.points.clear()
    for trial in _ended(study):
        sweep.take_over(_points(sweep, trial))
    while (left := trials - len(_ended(study))) > 0:
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
        asked = [study.ask() for _ in range(min(left, jobs))]
        for trial in asked:
            for key, axis in sweep.spec.axes.items():
                _suggest(trial, key, axis)
        points = {trial.number: _points(sweep, trial) for trial in asked}
        together = [point for group in points.values() for point in group]
        sweep.reporter.message(f"search: trial {asked[0].number + 1} and on, {left} to go")
        results = sweep.run(executor, jobs, sweep.plan(together))
        for trial in asked:
            values = _values([results[point] for point in points[trial.number] if point in results], objectives)
            state = optuna.trial.TrialState.FAIL if values is None else optuna.trial.TrialState.COMPLETE
            study.tell(trial, values, state=state)
    best = tuple((_points(sweep, trial)[0], tuple(trial.values)) for trial in study.best_trials)
    return Found(sweep.results, best)


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")  # so that types are checked without it, too
    except ImportError as error:
        raise ConfigError(
            f"--search: Optuna is not installed ({error}); install it with: pip install 'tinyml-pipeline[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _ended(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.is_finished() and _INTERRUPTED not in trial.user_attrs]


def _ask_again(study: Any, optuna: Any) -> None:
    """What a killed process was running: its finished steps are in the cache."""
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, _INTERRUPTED, True)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)


def _suggest(trial: Any, key: str, axis: Axis) -> None:
    if isinstance(axis, Choices):
        trial.suggest_categorical(key, list(axis.values))
    elif axis.kind == "whole":
        trial.suggest_int(key, int(axis.low), int(axis.high))
    else:
        trial.suggest_float(key, axis.low, axis.high, log=axis.kind == "log")


def _points(sweep: Sweep, trial: Any) -> list[Point]:
    """Of a trial: one for each experiment and seed."""
    spec: Spec = sweep.spec
    texts = {key: number_text(value) if isinstance(value, float) else str(value) for key, value in trial.params.items()}
    settings = tuple((key, texts[key]) for key in spec.axes)
    pairs = [(experiment, seed) for experiment in spec.experiments for seed in spec.seeds]
    first = trial.number * len(pairs)
    return [
        Point(first + place, trial.number, experiment, settings, seed, spec.seed_keys)
        for place, (experiment, seed) in enumerate(pairs)
    ]


def _values(results: Sequence[PointResult], objectives: Sequence[Objective]) -> list[float] | None:
    """Means; None if a point failed or has no such figure."""
    if not results or any(result.state == "failed" for result in results):
        return None
    rows = [row for result in results for row in result.rows]
    means = []
    for objective in objectives:
        figures = [row.get(objective.column, "") for row in rows]
        if not figures or "" in figures:
            known = ", ".join(name for name in (rows[0] if rows else {}) if rows[0][name])
            raise ConfigError(f"--objective {objective.column}: the results have no such figure; they have {known}")
        means.append(statistics.fmean(float(figure) for figure in figures))
    return means
