"""`pipeline ci`: everything configured, on every board wanted, compared with a baseline.

Each experiment runs on each board by itself, so that one bad board does not hide the others; what they share comes
from the cache. A fault of the infrastructure (a silent board, an overrun instrument) is tried again and counted; a
step that fails for another reason is not, and neither is a figure that got worse.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.ci.baseline import DEFAULT_TOLERANCES, IDENTITY, Comparison, Row, Tolerance, ToleranceField, compared
from pipeline.ci.junit import Case, Suite
from pipeline.config import Project, load_section
from pipeline.engine.assembly import RunOptions, experiment_runner, load_experiments, model_runner
from pipeline.engine.executor import StepFailed
from pipeline.engine.runner import Reporter, artifact_paths
from pipeline.errors import ConfigError, HardwareAbsent, HardwareError, PipelineError
from pipeline.stage import Config, Target

MODES = ("virtual", "attached", "all")


class CiConfig(Config):
    """Section `ci` of pipeline.yaml."""

    experiments: tuple[str, ...] | None = None  # None: all of them
    models: tuple[Path, ...] = ()  # .tflite files, beside pipeline.yaml, measured as they are
    boards: tuple[str, ...] = ()  # for the models; empty: those of `defaults`
    quick: bool = True
    retries: int = 2  # of one experiment on one board, for faults of the infrastructure
    baseline: Path | None = None
    tolerances: dict[str, ToleranceField] = {}

    def all_tolerances(self) -> dict[str, Tolerance]:
        return {**DEFAULT_TOLERANCES, **self.tolerances}


@dataclass(frozen=True)
class Task:
    """One experiment (or model) on one board."""

    experiment: str  # its name in the baseline: with -quick where it is the quick one
    target: Target
    run: Callable[[], Row]

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.experiment, self.target.board, self.target.source)

    def __str__(self) -> str:
        return f"{self.experiment} on {self.target.board} ({self.target.source})"


@dataclass(frozen=True)
class TaskResult:
    """What came of it: a row, or why there is none."""

    task: Task
    row: Row | None
    error: str
    infrastructure: bool  # the error is the bench's, not the network's
    retries: tuple[str, ...]  # what went wrong before it worked
    seconds: float
    comparisons: tuple[Comparison, ...] = ()

    @property
    def regressions(self) -> tuple[Comparison, ...]:
        return tuple(one for one in self.comparisons if one.verdict in ("regression", "lost"))

    def as_row(self) -> Row:
        """For the CSV file: what was found, or only what was tried."""
        named = dict(zip(IDENTITY, self.task.identity, strict=True))
        row = {} if self.row is None else self.row
        return {**named, "status": self.status, "retries": str(len(self.retries)), **row, **named}

    def as_cells(self) -> tuple[str, ...]:
        counts = [
            sum(one.verdict in verdicts for one in self.comparisons)
            for verdicts in (("same", "regression", "improved"), ("regression", "lost"), ("improved",))
        ]
        return (*self.task.identity, self.status, str(len(self.retries)), *map(str, counts))

    def as_record(self) -> dict[str, Any]:
        named = dict(zip(IDENTITY, self.task.identity, strict=True))
        figures = [{**asdict(one), "tolerance": str(one.tolerance)} for one in self.comparisons]
        told = {"status": self.status, "error": self.error, "retries": list(self.retries)}
        return {**named, **told, "row": self.row, "comparisons": figures}

    @property
    def status(self) -> str:
        if self.row is None:
            return "infrastructure" if self.infrastructure else "failed"
        return "regression" if self.regressions else "ok"


def ci_config(project: Project) -> CiConfig:
    found = load_section(project, "ci", CiConfig)
    assert isinstance(found, CiConfig)
    return found


def tasks_of(
    project: Project, config: CiConfig, boards: str, only: Sequence[str], options: RunOptions, reporter: Reporter
) -> list[Task]:
    """Every experiment and model on every board wanted; raises `HardwareAbsent` where that leaves nothing."""
    attached = (options.attached or project.attached_boards)() or frozenset()
    names = tuple(only) or (tuple(project.experiments) if config.experiments is None else config.experiments)
    brought = {path.stem: project.root / path for path in config.models if not only or path.stem in only}
    tasks = []
    trained = [name for name in names if name not in brought]
    for experiment in load_experiments(project, trained, quick=config.quick, settings=options.settings):
        for target in _targets(boards, experiment.boards, attached):
            run = _experiment_run(project, experiment.name, config.quick, target, options, reporter)
            tasks.append(Task(experiment.run_name, target, run))
    for name, path in brought.items():
        listed = config.boards or tuple(project.document.below("defaults").values.get("boards", ()))
        for target in _targets(boards, listed, attached):
            tasks.append(Task(name, target, _model_run(project, path, target, options, reporter)))
    if not tasks:
        known = ", ".join(sorted(attached)) or "none"
        raise HardwareAbsent(
            f"--boards {boards}: nothing to run, attached boards are {known}; attach one, or say virtual"
        )
    return tasks


def _targets(boards: str, listed: Sequence[str], attached: frozenset[str]) -> list[Target]:
    if boards in MODES:
        real = [Target(name, "hardware") for name in listed if name in attached]
        twins = [Target(name, "virtual") for name in listed]
        return {"virtual": twins, "attached": real, "all": real + twins}[boards]
    wanted = [name.strip() for name in boards.split(",") if name.strip()]
    for name in wanted:
        if name not in attached:
            raise HardwareAbsent(f"--boards {name}: not attached; attach it, or say one of {', '.join(MODES)}")
    return [Target(name, "hardware") for name in wanted]


def run_task(task: Task, retries: int, baseline: Row | None, tolerances: Mapping[str, Tolerance]) -> TaskResult:
    """Run it, again after faults of the infrastructure, and compare."""
    begin = time.monotonic()
    troubles: list[str] = []
    while True:
        row, error, infrastructure = None, "", False
        try:
            row = task.run()
        except ConfigError:
            raise
        except PipelineError as failure:
            error, infrastructure = str(failure), _is_infrastructure(failure)
        if row is None and infrastructure and len(troubles) < retries:
            troubles.append(error)
            continue
        comparisons = () if row is None else tuple(compared(row, baseline, tolerances))
        seconds = time.monotonic() - begin
        return TaskResult(task, row, error, infrastructure, tuple(troubles), seconds, comparisons)


def suites_of(results: Sequence[TaskResult]) -> list[Suite]:
    """The results as JUnit wants them."""
    suites: dict[str, Suite] = {}
    for result in results:
        suite = suites.setdefault(result.task.experiment, Suite(result.task.experiment))
        target = result.task.target
        where = f"{result.task.experiment}.{target.board}.{target.source}"
        retried = "\n".join(f"infrastructure fault, tried again: {trouble}" for trouble in result.retries)
        if result.row is not None:
            suite.cases.append(Case(where, "run", seconds=result.seconds, output=retried))
        elif result.infrastructure:
            suite.cases.append(Case(where, "run", "error", result.error, "infrastructure", result.seconds, retried))
        else:
            suite.cases.append(Case(where, "run", "failure", result.error, "step", result.seconds, retried))
        suite.cases += [_column_case(where, one) for one in result.comparisons]
        counted = int(suite.properties.get("infrastructure_retries", "0")) + len(result.retries)
        suite.properties["infrastructure_retries"] = str(counted)
    return list(suites.values())


def _column_case(where: str, one: Comparison) -> Case:
    if one.verdict in ("regression", "lost"):
        return Case(where, one.column, "failure", str(one), one.verdict)
    if one.verdict == "new":
        return Case(where, one.column, "skipped", f"{one}; no baseline to compare with")
    return Case(where, one.column, output=str(one) if one.verdict == "improved" else "")


def _is_infrastructure(error: PipelineError) -> bool:
    return error.infrastructure if isinstance(error, StepFailed) else isinstance(error, HardwareError)


def _options(target: Target, options: RunOptions) -> RunOptions:
    return replace(options, boards=(target.board,), virtual=target.source == "virtual")


def _experiment_run(
    project: Project, name: str, quick: bool, target: Target, options: RunOptions, reporter: Reporter
) -> Callable[[], Row]:
    def run() -> Row:
        runner = experiment_runner(project.file, name, quick, _options(target, options), reporter)
        rows = artifact_paths(runner.run(jobs=1))[project.show.get("rows", "")]
        found = [row for row in csv.DictReader(rows.read_text().splitlines()) if row["board"] == target.board]
        return {**found[0], "experiment": runner.experiment.run_name, "source": target.source}

    return run


def _model_run(
    project: Project, model: Path, target: Target, options: RunOptions, reporter: Reporter
) -> Callable[[], Row]:
    def run() -> Row:
        runner = model_runner(project.file, model, None, None, _options(target, options), reporter)
        folders = {outcome.node.step: outcome.entry.folder for outcome in runner.run(jobs=1)}
        record: Mapping[str, Any] = project.tool("measured")(folders).record
        plain = {key: "" if value is None else _text(value) for key, value in record.items()}
        return {**plain, "experiment": model.stem, "board": target.board, "source": target.source}

    return run


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.9g}" if isinstance(value, float) else json.dumps(value)
