"""The command around studies: the questions of `studies` in pipeline.yaml, each answered by a sweep and a table."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.options import (
    Address,
    AsJson,
    Boards,
    ExecutorName,
    MostJobs,
    Settings,
    Virtual,
    chosen,
    chosen_place,
)
from pipeline.cli.output import print_json, print_lines, print_table
from pipeline.cli.sweep_commands import INTERRUPTED, print_plan, same_command
from pipeline.engine.assembly import RunOptions, Workshop
from pipeline.sweeps.display import board_for_stderr
from pipeline.sweeps.study import study_config, study_spec, tabulated
from pipeline.sweeps.sweep import Sweep


def study(
    name: Annotated[str | None, typer.Argument(help="a study of pipeline.yaml; without it: the list")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="its short profile: synthetic data, a few steps")] = False,
    settings: Settings = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="each point with these: 0..4", metavar="N..M")] = None,
    experiment: Annotated[str | None, typer.Option("--experiment", help="study this one instead")] = None,
    so_far: Annotated[bool, typer.Option("--so-far", help="tabulate what has ended, and run nothing")] = False,
    only_plan: Annotated[bool, typer.Option("--plan", help="say what would run, and run nothing")] = False,
    board: Boards = None,
    virtual: Virtual = False,
    jobs: MostJobs = None,
    executor: ExecutorName = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question with many trainings: a table with standard errors, charts, and what of it is significant."""
    with board_for_stderr() as display:
        workshop = Workshop(chosen.file, display.message)
        if name is None:
            return _list(workshop, as_json)
        spec = study_spec(
            workshop.project, name, quick=quick, settings=settings or (), seeds=seeds, experiment=experiment
        )
        place = chosen_place(executor, address, jobs, display.message)
        options = RunOptions(boards=board or (), virtual=virtual, settings=(), **place.options)
        asked = Sweep(workshop, spec, options, display)
        if only_plan:
            return print_plan(asked.plan(), as_json)
        if so_far:
            asked.take_over(asked.points)
            results = asked.results
        else:
            with asked.folder.held():
                asked.folder.keep_question(spec, same_command())
                try:
                    results = asked.run(options.executor, place.jobs, asked.plan())
                except KeyboardInterrupt:
                    display.write(f"interrupted: what has ended is kept; go on with: {' '.join(same_command())}")
                    raise typer.Exit(INTERRUPTED) from None
        answer = tabulated(asked, name, results)
    if as_json:
        print_json(answer.record)
    else:
        print_lines(answer.text.splitlines())
    if any(result.state == "failed" for result in results.values()):
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    app.command()(study)


def _list(workshop: Workshop, as_json: bool) -> None:
    found = {name: study_config(workshop.project, name) for name in workshop.project.studies}
    if as_json:
        return print_json([{"name": name, "title": one.title, "question": one.question} for name, one in found.items()])
    print_table([(name, one.title, one.experiment) for name, one in found.items()])
