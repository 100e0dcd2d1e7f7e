"""The options of a command -> a Runner: project, experiment, boards, cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import Experiment, Project, load_experiment, load_project, model_experiment
from pipeline.digest import file_digest
from pipeline.engine.cache import Cache
from pipeline.engine.dag import Dag, Step, build_dag, load_steps, section_models
from pipeline.engine.executor import Executor, LocalExecutor
from pipeline.engine.runner import Reporter, Runner, Selection
from pipeline.engine.source_notes import SourceNotes
from pipeline.engine.sources import SourceTree, imported_names
from pipeline.errors import ConfigError, HardwareAbsent
from pipeline.stage import Target

if TYPE_CHECKING:
    from pipeline.store.shared import SharedStore


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`, `plan`, `why`, `measure` and `diff`."""

    boards: Sequence[str]
    virtual: bool
    settings: Sequence[str]
    start: str | None = None
    only: str | None = None
    force: Sequence[str] = ()
    until: str | None = None  # no step beyond this one
    executor: Executor = field(default_factory=LocalExecutor)
    attached: Callable[[], frozenset[str]] | None = None  # boards where the steps run; None: those of this machine


def load_experiments(
    project: Project, names: Iterable[str], *, quick: bool = False, settings: Sequence[str] = ()
) -> list[Experiment]:
    """Experiments of pipeline.yaml, each checked against the steps."""
    models = section_models(load_steps(project.steps))
    return [load_experiment(project, name, quick=quick, settings=settings, models=models) for name in names]


class Workshop:
    """What the runs of one command share: project, steps, cache, source code, boards that are attached."""

    def __init__(self, file: Path, report: Callable[[str], None]) -> None:
        self.project = load_project(file)
        self.steps = load_steps(self.project.steps)
        self.cache = open_cache(self.project, report)
        self.code = source_tree(self.project, self.cache)
        self._models = section_models(self.steps)
        self._dags: dict[tuple[tuple[Target, ...], str | None], Dag] = {}

    def experiment(self, name: str, quick: bool, settings: Sequence[str]) -> Experiment:
        return load_experiment(self.project, name, quick=quick, settings=settings, models=self._models)

    def targets(self, experiment: Experiment, options: RunOptions, reporter: Reporter) -> list[Target]:
        return _targets(self.project, experiment, options, reporter)

    def point(
        self,
        experiment: Experiment,
        targets: Sequence[Target],
        settings: Sequence[str],
        until: str | None = None,
        **parts: Any,
    ) -> Runner:
        """One of many runs: `parts` are the reporter, the executor and what else a runner is made of."""
        known = (tuple(targets), until)
        if known not in self._dags:
            self._dags[known] = _dag(self.steps, *known)
        words = ["run", experiment.name, *(["--quick"] if experiment.quick else [])]
        return Runner(
            project=self.project,
            experiment=experiment,
            dag=self._dags[known],
            cache=self.cache,
            selection=Selection(until=until),
            words=words,
            overrides=tuple(settings),
            **parts,
        )


def source_tree(project: Project, cache: Cache) -> SourceTree:
    """The modules of the project and ours."""
    engine_root = Path(__file__).resolve().parent.parent.parent
    roots = tuple(dict.fromkeys((project.root.resolve(), engine_root)))
    return SourceTree(roots, SourceNotes(cache.root / "sources.json", imported_names))


def experiment_runner(file: Path, name: str, quick: bool, options: RunOptions, reporter: Reporter) -> Runner:
    """A runner for an experiment of pipeline.yaml."""
    project = load_project(file)
    steps = load_steps(project.steps)
    models = section_models(steps)
    experiment = load_experiment(project, name, quick=quick, settings=options.settings, models=models)
    if experiment.derived:
        reporter.message(f"{name} says nothing of --quick, so it runs with {', '.join(experiment.derived)}")
    words = ["run", name, *(["--quick"] if quick else [])]
    return _runner(project, steps, experiment, options, reporter, words)


def model_runner(
    file: Path,
    model: Path,
    inputs: Path | None,
    labels: Path | None,
    options: RunOptions,
    reporter: Reporter,
    called: str | None = None,
) -> Runner:
    """A runner for a network that somebody brings along, `called` so or by its path; the files enter the cache key."""
    project, name = load_project(file), called or str(model)
    steps = load_steps(project.model_steps)
    files = {"model": model, "inputs": inputs, "labels": labels}
    brought = {"bring": {name: _pinned(path) for name, path in files.items() if path is not None}}
    experiment = model_experiment(
        project, Path(name.rpartition(":")[2]).stem, brought, options.settings, section_models(steps)
    )
    words = ["measure", name, *(["--inputs", str(inputs)] if inputs else [])]
    words += ["--labels", str(labels)] if labels else []
    return _runner(project, steps, experiment, options, reporter, words)


def open_cache(project: Project, report: Callable[[str], None]) -> Cache:
    """The local cache, and behind it the store that `store` of pipeline.yaml or PIPELINE_STORE names."""
    return Cache(cache_root(project), report, shared_store(project, report))


def shared_store(project: Project, report: Callable[[str], None]) -> SharedStore | None:
    url = os.environ.get("PIPELINE_STORE") or project.document.values.get("store")
    if not url:
        return None
    if not isinstance(url, str):
        raise ConfigError(
            f"{project.document.origins[('store',)]}: found {url!r}, needed a URL such as s3://bucket/lab"
        )
    from pipeline.store.shared import SharedStore

    return SharedStore.at(url, report)


def cache_root(project: Project) -> Path:
    return Path(os.environ.get("PIPELINE_CACHE") or project.root / ".pipeline").resolve()


def _pinned(file: Path) -> dict[str, str]:
    try:
        return {"path": str(file.resolve()), "sha256": file_digest(file)}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); check the path") from error


def _runner(
    project: Project,
    steps: dict[str, Step],
    experiment: Experiment,
    options: RunOptions,
    reporter: Reporter,
    words: Sequence[str],
) -> Runner:
    targets = _targets(project, experiment, options, reporter)
    dag = _dag(steps, targets, options.until)
    for step in (options.start, options.only, *options.force):
        if step is not None:
            dag.step_named(step)
    cache = open_cache(project, reporter.message)
    return Runner(
        project=project,
        experiment=experiment,
        dag=dag,
        cache=cache,
        selection=Selection(options.start, options.only, frozenset(options.force), options.until),
        reporter=reporter,
        executor=options.executor,
        words=words,
        overrides=tuple(options.settings),
        code=source_tree(project, cache),
    )


def _dag(steps: dict[str, Step], targets: Sequence[Target], until: str | None) -> Dag:
    """All steps, or those up to one of them."""
    dag = build_dag(steps, targets)
    if until is None:
        return dag
    wanted = {dag.step_named(until)} | dag.upstream_steps(until)
    return build_dag({name: step for name, step in steps.items() if name in wanted}, targets)


def _targets(project: Project, experiment: Experiment, options: RunOptions, reporter: Reporter) -> list[Target]:
    """The boards of a run: real where attached, their twins where none is; --board and --virtual decide otherwise."""
    names = tuple(dict.fromkeys(options.boards)) or experiment.boards
    for name in options.boards:  # those of an experiment are looked at with the sources of its steps, at no cost
        project.refuse_unknown_board("--board", name)
    look = options.attached or project.attached_boards
    attached = None if options.virtual else look()
    if attached is None:
        return [Target(name, "virtual") for name in names]
    absent = [name for name in names if name not in attached]
    if options.boards and absent:
        raise HardwareAbsent(f"--board {absent[0]}: not attached; attach it, or add --virtual to use its twin")
    if absent == list(names):
        if names:
            reporter.message(
                f"no board attached: the virtual twins of {', '.join(names)} are used, every row says source=virtual"
            )
        return [Target(name, "virtual") for name in names]
    return [Target(name, "hardware") for name in names if name in attached]
