"""Walks the DAG: serves each node from the cache or has it executed, and can say beforehand which it will be.

A node's key is known once its inputs are, because it is made of their content digests. So a step that runs again and
yields the same bytes leaves everything after it cached. A step on real hardware gets a key of its own each time.
"""

from __future__ import annotations

import concurrent.futures
import graphlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.config import Experiment, Project
from pipeline.digest import value_digest
from pipeline.engine.cache import Cache, Entry, is_in_place
from pipeline.engine.dag import Dag, Node
from pipeline.engine.executor import Executor
from pipeline.engine.history import History
from pipeline.engine.ingredients import Ingredients, differences, extra_sources, ingredients_of
from pipeline.engine.recording import completed, result_rows, run_facts, run_store, surroundings, tool_versions
from pipeline.engine.sources import SourceTree
from pipeline.engine.tool_versions import require_package, require_program
from pipeline.engine.worker import Job
from pipeline.errors import StageError
from pipeline.records.record import OpenRun


class Reporter(Protocol):
    """Receives what happens; may be called from several threads."""

    def message(self, text: str) -> None: ...
    def planned(self, steps: int) -> None: ...
    def started(self, node: Node, reason: str) -> None: ...
    def progressed(self, node: Node, event: Mapping[str, Any]) -> None: ...
    def finished(self, node: Node, status: str, seconds: float) -> None: ...


@dataclass(frozen=True)
class Selection:
    """Which nodes may be executed: from a step on, only one step, and which even when cached."""

    start: str | None = None
    only: str | None = None
    force: frozenset[str] = frozenset()
    until: str | None = None  # the graph ends there


@dataclass(frozen=True)
class Forecast:
    """What will happen to a node, and why."""

    node: Node
    status: Literal["cached", "run", "open"]  # open: depends on what a step before it yields
    reason: str
    key: str | None = None  # of its entry in the cache, where it is cached


@dataclass(frozen=True)
class Outcome:
    """What happened to a node."""

    node: Node
    status: Literal["cached", "ran"]
    seconds: float
    entry: Entry
    ingredients: Ingredients


def artifact_paths(outcomes: Iterable[Outcome]) -> dict[str, Path]:
    """Artifact -> its file or folder; where several boards made it, the last one's."""
    return {name: outcome.entry.path(name) for outcome in outcomes for name in outcome.entry.outputs}


@dataclass
class Runner:
    """One experiment, ready to be planned or run."""

    project: Project
    experiment: Experiment
    dag: Dag
    cache: Cache
    selection: Selection
    reporter: Reporter
    executor: Executor
    words: Sequence[str]  # the command, for the record: without boards and overrides
    overrides: Sequence[str]
    code: SourceTree
    surroundings: Mapping[str, Any] | None = None  # commit and machine; None: looked up when the run begins
    log_folder: str = ""  # below that of the experiment: its runs at the same time keep their logs apart
    record: OpenRun = field(init=False)  # of the run that goes on, or has ended
    history: History = field(init=False)
    _known: dict[tuple[Node, tuple[str, ...]], Ingredients] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.cache.root, self.experiment.run_name)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What this run visits: everything, or with `only` that step and what it needs."""
        only = self.selection.only
        if only is None:
            return self.dag.nodes
        wanted = {only} | self.dag.upstream_steps(only)
        return tuple(node for node in self.dag.nodes if node.step in wanted)

    def plan(self) -> list[Forecast]:
        """The future of every node, without executing any."""
        return self._planned({})

    def plan_at_a_glance(self) -> list[Forecast]:
        """The same without reading what is cached: damage in a file is found when the file is used."""
        return self._planned({}, self.cache.glance)

    def cost(self) -> str:
        """What the project's `forecast` tool tells about the steps that are still to run; empty without one."""
        forecast = self.project.forecast
        known: dict[Node, Entry] = {}
        if forecast is None or all(item.status == "cached" for item in self._planned(known)):
            return ""
        artifacts = {name: entry.path(name) for entry in known.values() for name in entry.outputs}
        return forecast(self.experiment.sections, artifacts, self.cache.root).text

    def _planned(
        self, known: dict[Node, Entry], look: Callable[[str, str], Entry | None] | None = None
    ) -> list[Forecast]:
        forecasts = []
        for node in self.nodes:
            first = self._waits_for(node, known)
            if first is not None:
                forecasts.append(Forecast(node, "open", f"after {first}"))
                continue
            ingredients = self._ingredients(node, known)
            entry = (
                None if self.always_runs(node) else (look or self.cache.lookup)(node.step, value_digest(ingredients))
            )
            if entry is None or node.step in self.selection.force:
                forecasts.append(Forecast(node, "run", self.reason(node, ingredients)))
            else:
                known[node] = entry
                forecasts.append(Forecast(node, "cached", "", entry.folder.name))
        return forecasts

    def reason(self, node: Node, ingredients: Ingredients) -> str:
        """Why a node has to run."""
        if self.always_runs(node):
            return "touches hardware"
        if node.step in self.selection.force:
            return "forced"
        last = self.history.last(node)
        changed = differences(last.ingredients, ingredients) if last else []
        if not changed:
            return "first run" if last is None else "not in the cache"
        return changed[0] if len(changed) == 1 else f"{changed[0]} and {len(changed) - 1} more"

    def explain(self, step: str) -> dict[Node, list[str]]:
        """For each node of a step: the ingredients that changed since its last use, or that made it run then."""
        known: dict[Node, Entry] = {}
        answers: dict[Node, list[str]] = {}
        for node in self.dag.nodes:
            first = self._waits_for(node, known)
            if first is not None:
                if node.step == step:
                    answers[node] = [f"{first} has to run first; ask: pipeline why {self.experiment.name} {first.step}"]
                continue
            ingredients = self._ingredients(node, known)
            entry = self.cache.lookup(node.step, value_digest(ingredients))
            if entry is not None:
                known[node] = entry
            if node.step == step:
                answers[node] = self._answer(node, ingredients, entry)
        return answers

    def run(self, jobs: int) -> list[Outcome]:
        """Bring every node up to date; the first error stops what has not begun and is raised."""
        with self.cache.in_use():
            self._check_needs()
            place = self.surroundings or surroundings(self.project)
            facts = {**run_facts(self.experiment, self.nodes, self.words, self.overrides), **place}
            self.reporter.planned(len(self.nodes))
            self.record = OpenRun(run_store(self.project), self.experiment.run_name, facts)
            try:
                outcomes = self._walk(jobs)
            except BaseException as error:
                state = "failed" if isinstance(error, Exception) else "killed"
                self._close(state, error=str(error) or type(error).__name__)
                raise
            finally:
                self.executor.stop()
            self._close("done", whole=self.selection.only is None and self.selection.until is None)
            return outcomes

    def _close(self, state: str, *, whole: bool = False, error: str | None = None) -> None:
        self.record.close(state, order=[node.folder for node in self.nodes], whole=whole, error=error)

    def _walk(self, jobs: int) -> list[Outcome]:
        outcomes: dict[Node, Outcome] = {}
        waiting = graphlib.TopologicalSorter({node: self.dag.sources(node) for node in self.nodes})
        waiting.prepare()
        failure: BaseException | None = None
        running: dict[concurrent.futures.Future[Outcome], Node] = {}
        with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
            try:
                while (waiting.is_active() and failure is None) or running:
                    ready = waiting.get_ready() if failure is None else ()
                    for node in ready:
                        entries = {source: outcomes[source].entry for source in self.dag.sources(node)}
                        if len(ready) == 1 and not running:  # a thread is worth its start where there are several
                            outcomes[node] = self._bring_up_to_date(node, entries)
                            waiting.done(node)
                        else:
                            running[pool.submit(self._bring_up_to_date, node, entries)] = node
                    if not running:
                        continue
                    done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        node = running.pop(future)
                        error = future.exception()
                        if error is None:
                            outcomes[node] = future.result()
                            waiting.done(node)
                        failure = failure or error
            except BaseException:  # interrupted: the pool would wait for its threads, and they for their workers
                self.executor.stop()
                raise
        if failure is not None:
            raise failure
        return [outcomes[node] for node in self.nodes]

    def _check_needs(self) -> None:
        """Miss a compiler or a board's files now, not after an hour of training."""
        for node in self.nodes:
            extra_sources(node, self.dag.stage(node).sources, self.code.roots)
        forecasts = [forecast for forecast in self.plan() if forecast.status != "cached"]
        for forecast in forecasts:
            stage = self.dag.stage(forecast.node)
            for package in stage.packages:
                require_package(package, str(forecast.node))
            for program in stage.programs_for(forecast.node.target):
                require_program(program, str(forecast.node), self.project.programs)
        for forecast in forecasts:
            if forecast.status == "open":  # one that is about to run finds out by itself
                self._check_code_of_user(forecast.node)
        self.code.notes.save()

    def _check_code_of_user(self, node: Node) -> None:
        """Let a step refuse the user's own code before the steps in front of it have run for nothing."""
        stage = self.dag.stage(node)
        if stage.check is None or not any(self.experiment.sections[name].source_modules for name in stage.sections):
            return
        job = Job(
            root=self.code.roots[0],
            module=self.dag.steps[node.step].module,
            artifacts={},
            sections={section: dict(self.experiment.raw[section]) for section in stage.sections},
            experiment=self.experiment.name,
            target=node.target,
            out_dir=self.cache.root,
            checkpoint_dir=self.cache.root,
            check=stage.check,
        )
        with Path("/dev/null").open() as nothing:  # in place of a lock: nothing is built
            self.executor.run(
                str(node),
                job,
                lock=nothing.fileno(),
                log=self._log(node, ".check"),
                on_event=lambda _: None,
            )

    def _bring_up_to_date(self, node: Node, sources: Mapping[Node, Entry]) -> Outcome:
        ingredients = self._ingredients(node, sources)
        if self.always_runs(node):
            ingredients["run"] = uuid.uuid4().hex
        key = value_digest(ingredients)
        forced = node.step in self.selection.force
        entry = None if forced else self.cache.lookup(node.step, key)
        if entry is None:
            self._refuse_outside_selection(node)
            waits = f"{node}: another run is working on the same; waiting for it"
            with self.cache.building(key, lambda: self.reporter.message(waits)) as lock:
                entry = None if forced else self.cache.lookup(node.step, key, discard=True)
                if entry is None:
                    return self._execute(node, key, ingredients, sources, lock)
        self.history.record(node, ingredients, "cached")
        return self._kept(Outcome(node, "cached", 0.0, entry, ingredients))

    def _execute(
        self, node: Node, key: str, ingredients: Ingredients, sources: Mapping[Node, Entry], lock: int
    ) -> Outcome:
        self.reporter.started(node, self.reason(node, ingredients))
        begin = time.monotonic()
        built = self.cache.fresh_folder(key)
        self.cache.take_up_checkpoint(key)

        def on_event(event: Mapping[str, Any]) -> None:
            self.reporter.progressed(node, event)
            self.cache.checkpoint_advanced(key)

        outputs = self.executor.run(
            str(node),
            self._job(node, sources, built, self.cache.checkpoint_folder(key), ingredients),
            lock=lock,
            log=self._log(node),
            on_event=on_event,
        )
        seconds = time.monotonic() - begin
        earlier = self.cache.lookup(node.step, key) if node.step in self.selection.force else None
        entry = self.cache.publish(
            node.step, key, built, {"ingredients": ingredients, "outputs": outputs, "seconds": round(seconds, 3)}
        )
        if earlier is not None and earlier.files != entry.files:
            differing = sorted(name for name, digest in entry.files.items() if earlier.files.get(name) != digest)
            self.reporter.message(f"{node}: forced run gave other bytes than the cached one: {', '.join(differing)}")
        self.history.record(node, ingredients, "ran")
        return self._kept(Outcome(node, "ran", seconds, entry, ingredients))

    def _kept(self, outcome: Outcome) -> Outcome:
        """Put the files of a node into the folder of this run."""
        node, entry = outcome.node, outcome.entry
        facts = {
            **{"step": node.step, "board": node.target and node.target.board},
            **{"source": node.target and node.target.source, "status": outcome.status},
            **{"seconds": round(outcome.seconds, 3), "key": entry.folder.name, "outputs": dict(entry.outputs)},
        }
        self.record.add_versions(tool_versions(outcome.ingredients))
        made = completed(self.project, entry, self.record.facts)
        self.record.add_rows(result_rows(self.project, entry, made))
        self.record.add_step(node.folder, facts, entry.folder, entry.files, made, lambda: is_in_place(entry))
        self.reporter.finished(node, outcome.status, outcome.seconds)
        return outcome

    def _job(
        self, node: Node, sources: Mapping[Node, Entry], out_dir: Path, checkpoint_dir: Path, made_of: Ingredients
    ) -> Job:
        stage = self.dag.stage(node)
        artifacts: dict[str, Path | dict[str, Path] | None] = {}
        for artifact, makers in self.dag.inputs[node].items():
            if stage.artifacts[artifact]:
                artifacts[artifact] = {
                    maker.target.board: self._of_this_run(maker, sources, artifact) for maker in makers if maker.target
                }
            else:
                artifacts[artifact] = self._of_this_run(makers[0], sources, artifact) if makers else None
        return Job(
            root=self.code.roots[0],
            module=self.dag.steps[node.step].module,
            artifacts=artifacts,
            sections={section: dict(self.experiment.raw[section]) for section in stage.sections},
            experiment=self.experiment.name,
            target=node.target,
            out_dir=out_dir,
            checkpoint_dir=checkpoint_dir,
            made_of=made_of,
        )

    def _log(self, node: Node, what: str = "") -> Path:
        return Path(f"{self.cache.root}/logs/{self.experiment.run_name}/{self.log_folder}/{node}{what}.log")

    def _of_this_run(self, maker: Node, sources: Mapping[Node, Entry], artifact: str) -> Path:
        """Not the cache's: another run may force the same step and replace the entry meanwhile."""
        return self.record.folder.resolve() / maker.folder / sources[maker].outputs[artifact]

    def _waits_for(self, node: Node, known: Mapping[Node, Entry]) -> Node | None:
        """The first source of a node whose artifacts are not known yet."""
        missing = self.dag.sources(node) - known.keys()
        return next((source for source in self.dag.nodes if source in missing), None)

    def _ingredients(self, node: Node, entries: Mapping[Node, Entry]) -> Ingredients:
        """Asked for twice in a run: by the plan, and when it is the node's turn."""
        known = (node, tuple(sorted(entries[source].seal for source in self.dag.sources(node))))
        if known not in self._known:
            self._known[known] = ingredients_of(node, self.dag, self.experiment, self.code, entries)
        return dict(self._known[known])

    def always_runs(self, node: Node) -> bool:
        """Cached or not: what it works on is no file."""
        on_hardware = node.target is not None and node.target.source == "hardware"
        return self.dag.stage(node).touches_hardware and on_hardware

    def _refuse_outside_selection(self, node: Node) -> None:
        only, start = self.selection.only, self.selection.start
        if only and node.step != only:
            raise StageError(
                f"{node}: not in the cache, needed by --only {only}; "
                f"run it first: pipeline run {self.experiment.name} --only {node.step}"
            )
        if start and node.step in self.dag.upstream_steps(start):
            raise StageError(f"{node}: not in the cache, needed by --from {start}; run without --from")

    def _answer(self, node: Node, ingredients: Ingredients, entry: Entry | None) -> list[str]:
        last = self.history.last(node)
        changed = differences(last.ingredients, ingredients) if last else []
        if changed:
            return changed
        if last is None:
            return [
                "never run here; everything is new" if entry is None else "cached by another experiment; never run here"
            ]
        if entry is None:
            return ["the entry is no longer in the cache; nothing else changed"]
        return differences(last.before, ingredients) if last.before else ["up to date; first run, everything was new"]
