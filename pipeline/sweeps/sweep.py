"""Points -> runs: those that are not up to date yet, several at once, each recorded as soon as it has ended.

A point is an ordinary run with overrides; what it shares with others comes from the cache, and of two that need the
same step at the same time one waits. A point is up to date when it was done in this sweep and everything that it was
made of is still what the plan asks for; a measurement on real hardware is not repeated then.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.engine.assembly import RunOptions, Workshop
from pipeline.engine.dag import Node
from pipeline.engine.executor import Executor
from pipeline.engine.recording import run_store, surroundings
from pipeline.engine.runner import Forecast, Runner
from pipeline.engine.sources import SourceTree
from pipeline.errors import PipelineError
from pipeline.records.store import read_run
from pipeline.stage import Target
from pipeline.sweeps.results import PointResult, SweepFolder
from pipeline.sweeps.slots import Slots, SweepStopped
from pipeline.sweeps.spec import Point, Spec

_OPEN_POINTS_PER_JOB = 4  # so that slots stay taken while some points wait for a step that another one makes
_TABLE_EVERY_S = 10.0


class SweepReporter(Protocol):
    """Receives what happens; is called from several threads."""

    def message(self, text: str) -> None: ...
    def planned(self, points: int, up_to_date: int) -> None: ...
    def point_started(self, point: Point) -> None: ...
    def point_step(self, point: Point, step: str, event: Mapping[str, Any]) -> None: ...
    def point_ended(self, point: Point, result: PointResult) -> None: ...


@dataclass(frozen=True)
class PointPlan:
    """What will happen to a point."""

    point: Point
    status: Literal["up to date", "cached", "run"]  # cached: no step runs, only its record is made
    to_run: int  # steps that are known to run, or may


class Sweep:
    """One sweep, ready to be planned or run."""

    def __init__(self, workshop: Workshop, spec: Spec, options: RunOptions, reporter: SweepReporter) -> None:
        self.workshop, self.spec, self.reporter = workshop, spec, reporter
        self.points = [] if spec.search else spec.points()
        self.results: dict[Point, PointResult] = {}
        self.folder = SweepFolder(spec.folder(workshop.project))
        silent = _PointReporter(None, reporter)
        self._targets: dict[str, list[Target]] = {}
        for name in spec.experiments:
            usual = workshop.experiment(name, spec.quick, ())
            self._targets[name] = workshop.targets(usual, options, silent)
        self._place: Mapping[str, Any] | None = None

    def plan(self, points: Sequence[Point] | None = None) -> list[PointPlan]:
        """The future of every point, or of these, without executing any; a wrong setting is found here."""
        plans = [self._planned(point) for point in (self.points if points is None else points)]
        self.workshop.code.notes.save()
        return plans

    def run(self, executor: Executor, jobs: int, plans: Sequence[PointPlan]) -> dict[Point, PointResult]:
        """Bring every point up to date; one that fails is recorded and the others go on."""
        done = [plan.point for plan in plans if plan.status == "up to date"]
        waiting = [plan.point for plan in plans if plan.status != "up to date"]
        self.take_over(done)
        known = self.results
        self.reporter.planned(len(plans), len(done))
        self._place = surroundings(self.workshop.project)
        slots = Slots(executor, jobs)
        try:
            with self.workshop.cache.in_use(), self._pool(jobs, len(waiting)) as pool:
                try:
                    running = {pool.submit(self._ended, point, slots, jobs): point for point in waiting}
                    told = time.monotonic()
                    for future in concurrent.futures.as_completed(running):
                        if (result := future.result()) is not None:
                            known[running[future]] = result
                        if time.monotonic() - told > _TABLE_EVERY_S:
                            self._write_table()
                            told = time.monotonic()
                except BaseException:
                    slots.stop()
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
        finally:
            self._write_table()
            executor.stop()
        return self._in_order()

    def take_over(self, points: Sequence[Point]) -> None:
        """What is recorded of these."""
        self.results |= {point: result for point in points if (result := self.folder.result(point)) is not None}

    def run_folder(self, result: PointResult) -> Path | None:
        """Where the files of a point are; None if it failed before it had any, or its run was dropped."""
        folder = None if result.run is None else run_store(self.workshop.project).root / result.run
        return folder if folder is not None and folder.is_dir() else None

    def run_facts(self, results: Mapping[Point, PointResult]) -> list[Mapping[str, Any]]:
        """The records of the points' runs, for pages made of many runs; those that were dropped are left out."""
        root = run_store(self.workshop.project).root
        runs = [read_run(root / result.run) for result in results.values() if result.run is not None]
        return [run.facts for run in runs if run is not None]

    def _pool(self, jobs: int, points: int) -> concurrent.futures.ThreadPoolExecutor:
        return concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(points, _OPEN_POINTS_PER_JOB * jobs)))

    def _in_order(self) -> dict[Point, PointResult]:
        return {point: self.results[point] for point in sorted(self.results, key=lambda point: point.index)}

    def _write_table(self) -> Path:
        return self.folder.write_results(self.spec, self._in_order())

    def _runner(self, point: Point, **parts: Any) -> Runner:
        experiment = self.workshop.experiment(point.experiment, self.spec.quick, point.overrides)
        targets = self._targets[point.experiment]
        return self.workshop.point(experiment, targets, point.overrides, self.spec.until, **parts)

    def _code(self) -> SourceTree:
        """Code may have been edited since the sweep began: each point looks at it again."""
        self.workshop.code = self.workshop.code.up_to_date()
        return self.workshop.code

    def _planned(self, point: Point) -> PointPlan:
        runner = self._runner(
            point, reporter=_PointReporter(point, self.reporter), executor=_NOBODY, code=self.workshop.code
        )
        forecasts = runner.plan_at_a_glance()
        to_run = sum(forecast.status != "cached" for forecast in forecasts)
        result = self.folder.result(point)
        if result is not None and result.state == "done" and _is_current(runner, forecasts, result):
            return PointPlan(point, "up to date", 0)
        return PointPlan(point, "run" if to_run else "cached", to_run)

    def _ended(self, point: Point, slots: Slots, jobs: int) -> PointResult | None:
        """What came of a point; None if the sweep was stopped meanwhile."""
        begin = time.monotonic()
        self.reporter.point_started(point)
        runner = self._runner(
            point,
            reporter=_PointReporter(point, self.reporter),
            executor=slots.lane(point.index),
            code=self._code(),
            surroundings=self._place,
            log_folder=point.id,
        )
        error: str | None = None
        try:
            runner.run(jobs)
        except SweepStopped:
            return None
        except (PipelineError, OSError) as failure:
            if slots.is_stopped:
                return None
            error = str(failure)
        result = _result_of(runner, error, time.monotonic() - begin)
        self.folder.keep(point, result)
        self.reporter.point_ended(point, result)
        return result


def _result_of(runner: Runner, error: str | None, seconds: float) -> PointResult:
    facts = runner.record.facts if hasattr(runner, "record") else {"steps": [], "rows": []}
    run = f"{facts['name']}/{facts['id']}" if "id" in facts else None
    keys = tuple(sorted(step["key"] for step in facts["steps"]))
    state: Literal["done", "failed"] = "done" if error is None else "failed"
    return PointResult(state, run, round(seconds, 3), error, keys, tuple(facts["rows"]) if error is None else ())


def _is_current(runner: Runner, forecasts: Sequence[Forecast], result: PointResult) -> bool:
    """Made of the same: what can be cached is, under the same keys; the rest touches hardware or comes after it."""
    keys = {forecast.key for forecast in forecasts if forecast.key is not None}
    begin = [forecast.node for forecast in forecasts if forecast.status == "run"]
    return keys <= set(result.keys) and all(runner.always_runs(node) for node in begin)


class _Nobody:
    """The executor of a plan."""

    def run(self, *_: Any, **__: Any) -> dict[str, str]:
        raise AssertionError("a plan executes nothing")

    def stop(self) -> None: ...


_NOBODY = _Nobody()


@dataclass(frozen=True)
class _PointReporter:
    """What a run says of itself -> what the sweep's reporter hears."""

    point: Point | None
    board: SweepReporter

    def message(self, text: str) -> None:
        self.board.message(text)

    def planned(self, steps: int) -> None: ...

    def started(self, node: Node, reason: str) -> None:
        self.progressed(node, {"event": "start", "total": 0, "unit": ""})

    def progressed(self, node: Node, event: Mapping[str, Any]) -> None:
        if self.point is not None:
            self.board.point_step(self.point, str(node), event)

    def finished(self, node: Node, status: str, seconds: float) -> None: ...
