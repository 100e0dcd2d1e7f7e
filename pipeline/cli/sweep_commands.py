"""The command around sweeps: many runs of experiments with other settings and seeds, in one table."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pipeline.cli.options import (
    Address,
    AsJson,
    Boards,
    ExecutorName,
    MostJobs,
    Quick,
    Virtual,
    chosen,
    chosen_place,
)
from pipeline.cli.output import print_json, print_lines, print_table
from pipeline.engine.assembly import RunOptions, Workshop
from pipeline.engine.executor import Executor
from pipeline.errors import ConfigError
from pipeline.stage import Answer
from pipeline.sweeps.display import board_for_stderr
from pipeline.sweeps.results import RESULTS, PointResult, rows_of
from pipeline.sweeps.spec import Point, asked_spec
from pipeline.sweeps.sweep import PointPlan, Sweep

INTERRUPTED = 130  # what shells say after Ctrl-C


def sweep(
    names: Annotated[
        list[str], typer.Argument(help="experiments, or an entry of `sweeps`", metavar="EXPERIMENT...|SWEEP")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="values to try: a.b=1,2,3 or 0..4 or log(1e-4..1e-1)", metavar="A.B=V,V"),
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="each point with these: 0..4", metavar="N..M")] = None,
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="draw this many combinations")] = None,
    sample_seed: Annotated[int | None, typer.Option("--sample-seed", help="of the draw")] = None,
    search: Annotated[
        int | None, typer.Option("--search", min=1, help="let Optuna choose this many combinations", metavar="N")
    ] = None,
    objectives: Annotated[
        list[str] | None,
        typer.Option("--objective", help="of the search, one or more: accuracy_int8:max", metavar="COLUMN:max|min"),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="folder below sweeps/; the same one goes on")] = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="say what would run, and run nothing")] = False,
    quick: Quick = False,
    board: Boards = None,
    virtual: Virtual = False,
    jobs: MostJobs = None,
    executor: ExecutorName = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments with many settings and seeds; what they share runs once, what is done is not repeated."""
    begin = time.monotonic()
    with board_for_stderr() as display:
        place = chosen_place(executor, address, jobs, display.message)
        options = RunOptions(boards=board or (), virtual=virtual, settings=(), **place.options)
        workshop = Workshop(chosen.file, display.message)
        spec = asked_spec(
            workshop.project,
            names,
            settings or (),
            seeds,
            sample,
            sample_seed,
            quick,
            name,
            search,
            objectives or (),
        )
        asked = Sweep(workshop, spec, options, display)
        if only_plan:
            return print_plan(asked.plan(), as_json, time.monotonic() - begin)
        with asked.folder.held():
            asked.folder.keep_question(spec, same_command())
            try:
                results, best = _results(asked, options.executor, place.jobs)
            except KeyboardInterrupt:
                display.write(
                    f"interrupted: every point that has ended is kept; go on with: {shlex.join(same_command())}"
                )
                raise typer.Exit(INTERRUPTED) from None
            _print_results(asked, results, best, time.monotonic() - begin, as_json)
    if any(result.state == "failed" for result in results.values()):
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    app.command()(sweep)


def same_command() -> list[str]:
    return ["pipeline", *sys.argv[1:]]


def print_plan(plans: list[PointPlan], as_json: bool, seconds: float | None = None) -> None:
    if as_json:
        return print_json([{"point": str(one.point), "status": one.status, "to_run": one.to_run} for one in plans])
    print_table([(str(one.point), one.status, f"{one.to_run} steps" if one.to_run else "") for one in plans])
    counts = [sum(one.status == status for one in plans) for status in ("up to date", "cached", "run")]
    sys.stderr.write(
        f"{len(plans)} points: {counts[0]} up to date, {counts[1]} cached, {counts[2]} to run"
        f"{'' if seconds is None else f'; planned in {seconds:.1f} s'}\n"
    )


def _results(sweep: Sweep, executor: Executor, jobs: int) -> tuple[Mapping[Point, PointResult], list[dict[str, Any]]]:
    """Of every point, and with a search its best ones."""
    if sweep.spec.search is None:
        return sweep.run(executor, jobs, sweep.plan()), []
    from pipeline.sweeps.search import objective_of, searched

    wanted = [objective_of(text) for text in sweep.spec.objectives]
    found = searched(sweep, wanted, sweep.spec.search, executor, jobs, sweep.spec.sample_seed)
    columns = [objective.column for objective in wanted]
    best = [
        {"settings": dict(point.settings), **dict(zip(columns, values, strict=True))} for point, values in found.best
    ]
    return found.results, best


def _print_results(
    sweep: Sweep, results: Mapping[Point, PointResult], best: list[dict[str, Any]], seconds: float, as_json: bool
) -> None:
    page = _pareto_page(sweep, results)
    folder = sweep.folder.path
    failed = [(point, result) for point, result in results.items() if result.state == "failed"]
    record: dict[str, Any] = {
        **{"name": sweep.spec.name, "folder": str(folder), "points": len(results), "failed": len(failed)},
        **{"rows": [row for point, result in results.items() for row in rows_of(point, result)]},
        **{"pareto": page and page.record["page"], "best": best},
    }
    lines = [f"{len(results)} points, {len(failed)} failed, {seconds:.1f} s: {folder / RESULTS}"]
    lines += [page.text] if page else []
    for one in best:
        figures = ", ".join(f"{key} {value:.6g}" for key, value in one.items() if key != "settings")
        lines.append(f"best: {' '.join(f'{key}={value}' for key, value in one['settings'].items())}: {figures}")
    lines += [f"failed: {point}: {(result.error or '').splitlines()[0]}" for point, result in failed]
    if failed:
        lines.append(f"failed points are tried again by: {shlex.join(same_command())}")
    if as_json:
        print_json(record)
    else:
        print_lines(lines)


def _pareto_page(sweep: Sweep, results: Mapping[Point, PointResult]) -> Answer | None:
    """Accuracy against cost over all points, where the project can draw it and there is something to draw."""
    project, facts = sweep.workshop.project, sweep.run_facts(results)
    if not project.has_tool("report_all") or not any(run["whole"] for run in facts):
        return None
    try:
        return project.tool("report_all")([run for run in facts if run["whole"]], sweep.folder.path / "pareto")
    except ConfigError:  # rows without an accuracy
        return None
