"""A sweep as asked for, on the command line or in `sweeps` of pipeline.yaml -> its points, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from pipeline.config import Project, load_section
from pipeline.digest import value_digest
from pipeline.errors import ConfigError
from pipeline.stage import Config
from pipeline.sweeps.axes import MOST_POINTS, Axis, axis_of, grid, sample, whole_numbers

FOLDER = "sweeps"  # beside `runs`


class SweepConfig(Config):
    """An entry of `sweeps`."""

    description: str = ""
    experiments: tuple[str, ...]
    set: dict[str, Any] = {}  # dotted key -> values
    seeds: int | str | list[int] | None = None
    sample: PositiveInt | None = None  # that many combinations, drawn
    sample_seed: int = 0
    search: PositiveInt | None = None  # that many trials, chosen by Optuna
    objectives: tuple[str, ...] = ()  # of the search: 'accuracy_int8:max'
    quick: bool = False


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    index: int  # among all of them
    number: int  # of its combination: those that differ in the seed alone have the same
    experiment: str
    settings: tuple[tuple[str, str], ...]  # dotted key, value
    seed: int | None
    seed_keys: tuple[str, ...]
    levels: tuple[tuple[str, str], ...] = ()  # of a study: factor, and the name of what was chosen for it

    @property
    def overrides(self) -> tuple[str, ...]:
        """As `pipeline run` takes them with --set."""
        seeds = () if self.seed is None else tuple(f"{key}={self.seed}" for key in self.seed_keys)
        return (*(f"{key}={value}" for key, value in self.settings), *seeds)

    @property
    def id(self) -> str:
        return value_digest([self.experiment, sorted(self.settings), self.seed])[:16]

    def __str__(self) -> str:
        seed = [] if self.seed is None else [f"seed={self.seed}"]
        chosen = self.levels or self.settings
        return " ".join([self.experiment, *(f"{key}={value}" for key, value in chosen), *seed])


@dataclass(frozen=True)
class Combination:
    """One choice for every factor of a study."""

    experiment: str
    levels: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Spec:
    """What is to be run, with every question of syntax answered."""

    name: str
    experiments: tuple[str, ...]
    axes: Mapping[str, Axis]
    seeds: tuple[int | None, ...]
    seed_keys: tuple[str, ...]
    sample: int | None
    sample_seed: int
    quick: bool
    search: int | None = None
    objectives: tuple[str, ...] = ()
    combinations: tuple[Combination, ...] = ()  # of a study, instead of axes
    until: str | None = None  # no step beyond this one

    def folder(self, project: Project) -> Path:
        return project.root / FOLDER / self.name

    def points(self) -> list[Point]:
        """Experiment by experiment, combination by combination, seed by seed."""
        if self.combinations:
            chosen_of = [(number, one, seed) for number, one in enumerate(self.combinations) for seed in self.seeds]
            return [
                Point(index, number, one.experiment, one.settings, seed, self.seed_keys, one.levels)
                for index, (number, one, seed) in enumerate(chosen_of)
            ]
        axes, where = tuple(self.axes.values()), f"sweep {self.name}"
        chosen = grid(where, axes) if self.sample is None else sample(where, axes, self.sample, self.sample_seed)
        combinations = [tuple(zip(self.axes, values, strict=True)) for values in chosen]
        total = len(combinations) * len(self.experiments) * len(self.seeds)
        if total > MOST_POINTS:
            raise ConfigError(f"{where}: {total:,} points, needed at most {MOST_POINTS:,}; draw some with --sample N")
        pairs = [(experiment, settings) for experiment in self.experiments for settings in combinations]
        seeded = [(number, *pair, seed) for number, pair in enumerate(pairs) for seed in self.seeds]
        return [Point(index, *parts, self.seed_keys) for index, parts in enumerate(seeded)]


def asked_spec(
    project: Project,
    names: Sequence[str],
    settings: Sequence[str] = (),
    seeds: str | None = None,
    count: int | None = None,
    sample_seed: int | None = None,
    quick: bool = False,
    name: str | None = None,
    search: int | None = None,
    objectives: Sequence[str] = (),
) -> Spec:
    """`names` are experiments, or one entry of `sweeps`, which the other arguments add to."""
    config = _config(project, names)
    texts = {key: config.set[key] for key in config.set}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting}: found no key=values, needed such as --set prune.rate=0.1,0.2")
        texts[key.strip()] = value
    axes = {key: axis_of(f"--set {key}", value) for key, value in texts.items()}
    asked_seeds = config.seeds if seeds is None else seeds
    if asked_seeds is not None and not project.seeds:
        raise ConfigError(
            f"{project.file.name}: seeds: missing, needed the settings that --seeds gives a value, "
            "such as seeds: [prune.seed]"
        )
    spec = Spec(
        name="",
        experiments=tuple(dict.fromkeys(config.experiments)),
        axes=axes,
        seeds=(None,) if asked_seeds is None else whole_numbers("--seeds", asked_seeds),
        seed_keys=project.seeds,
        sample=config.sample if count is None else count,
        sample_seed=config.sample_seed if sample_seed is None else sample_seed,
        quick=quick or config.quick,
        search=config.search if search is None else search,
        objectives=tuple(objectives) or config.objectives,
    )
    if spec.search and (spec.sample or not spec.objectives or not spec.axes):
        raise ConfigError("--search: needed --set with values to choose from, --objective COLUMN:max, and no --sample")
    return replace(spec, name=_folder_name(name or _own_name(names, spec)))


def _config(project: Project, names: Sequence[str]) -> SweepConfig:
    listed = [name for name in names if name in project.sweeps]
    if listed and len(names) > 1:
        raise ConfigError(f"{listed[0]}: is a sweep of {project.file.name}, needed it alone or experiments only")
    if listed and listed[0] in project.experiments:
        raise ConfigError(f"{listed[0]}: is both an experiment and a sweep of {project.file.name}; rename one")
    if listed:
        config = load_section(project, f"sweeps.{listed[0]}", SweepConfig)
        assert isinstance(config, SweepConfig)
        return config
    return SweepConfig(experiments=tuple(names))


def _own_name(names: Sequence[str], spec: Spec) -> str:
    """An entry's own; else one that the same question gives again, so that asking again goes on with it."""
    if len(names) == 1 and spec.experiments != tuple(names):
        return names[0]
    asked = [spec.experiments, {key: str(axis) for key, axis in spec.axes.items()}, spec.seeds]
    digest = value_digest([*asked, spec.sample, spec.sample_seed, spec.quick, spec.objectives])
    return f"{spec.experiments[0]}{'-quick' if spec.quick else ''}-{digest[:8]}"


def _folder_name(name: str) -> str:
    if name.startswith(".") or "/" in name or "\0" in name:
        raise ConfigError(f"{name!r}: is no name for the folder of a sweep; leave out slashes and a dot at the start")
    return name
