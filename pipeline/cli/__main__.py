"""The command line. The only place that prints results, reads the environment and sets the exit code."""

from __future__ import annotations

import dataclasses
import errno
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.api.console import PlainReporter
from pipeline.api.project import make_importable
from pipeline.cli import (
    bench_commands,
    init_command,
    mlperf_commands,
    model_commands,
    report_command,
    run_commands,
    store_commands,
    study_command,
    sweep_commands,
    training_commands,
)
from pipeline.cli.options import AsJson, Boards, ExperimentName, Quick, Settings, StepName, Virtual, chosen
from pipeline.cli.output import print_json, print_table
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions, cache_root, experiment_runner, load_experiments
from pipeline.engine.dag import load_steps
from pipeline.engine.executor import StepFailed
from pipeline.engine.runner import Runner
from pipeline.errors import DiskFull, PipelineError
from pipeline.text import shown

app = typer.Typer(
    help="From training to on-device measurement, in one command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


init_command.add_to(app)
run_commands.add_to(app)
sweep_commands.add_to(app)
study_command.add_to(app)
store_commands.add_to(app)
report_command.add_to(app)
model_commands.add_to(app)
bench_commands.add_to(app)
mlperf_commands.add_to(app)
training_commands.add_to(app)


@app.callback()
def _options(
    file: Annotated[Path, typer.Option("--file", help="the configuration; its folder is the project")] = Path(
        "pipeline.yaml"
    ),
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    chosen.file, chosen.debug = file, debug
    make_importable(file)


@app.command()
def plan(
    experiment: ExperimentName,
    quick: Quick = False,
    board: Boards = None,
    virtual: Virtual = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show the steps, what is cached and what will run."""
    runner = _runner(experiment, quick, board, virtual, settings)
    forecasts = runner.plan()
    if as_json:
        print_json([{"step": str(item.node), "status": item.status, "reason": item.reason} for item in forecasts])
        return
    words = {"cached": "cached", "run": "will run", "open": "may run"}
    print_table([(str(item.node), words[item.status], item.reason) for item in forecasts])
    if cost := runner.cost():
        sys.stdout.write(f"{cost}\n")


@app.command()
def why(
    experiment: ExperimentName,
    step: StepName,
    quick: Quick = False,
    board: Boards = None,
    virtual: Virtual = False,
    settings: Settings = None,
) -> None:
    """Name the ingredient that makes a step run, or made it run last time: old -> new."""
    runner = _runner(experiment, quick, board, virtual, settings)
    answers = runner.explain(runner.dag.step_named(step))
    for node, lines in answers.items():
        for line in lines:
            sys.stdout.write(f"{line}\n" if len(answers) == 1 else f"{node}: {line}\n")


@app.command(name="list")
def list_experiments(as_json: AsJson = False) -> None:
    """List the experiments of pipeline.yaml."""
    project = load_project(chosen.file)
    loaded = load_experiments(project, project.experiments)
    if as_json:
        print_json(
            [{"experiment": item.name, "description": item.description, "boards": item.boards} for item in loaded]
        )
        return
    print_table([(item.name, item.description, ", ".join(item.boards)) for item in loaded])


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check tool chain, versions, serial permissions and disk space; name the fix for each failure."""
    from pipeline.cli.doctor import findings

    project = load_project(chosen.file)
    found = list(
        findings(project.root, cache_root(project), load_steps(project.steps), project.programs, project.least_versions)
    )
    if as_json:
        print_json([dataclasses.asdict(item) for item in found])
    else:
        print_table([("ok" if not item.fix else "FIX", item.check, item.found, item.fix) for item in found])
    if any(item.fix for item in found):
        raise typer.Exit(1)


def main() -> None:
    """Entry point: every expected error becomes one sentence and its exit code."""
    try:
        app()
    except StepFailed as error:
        # A traceback is for a bug in the step; an expected error has none.
        _fail(str(error), error.exit_code, error.trace)
    except PipelineError as error:
        if chosen.debug:
            raise
        _fail(str(error), error.exit_code, None)
    except OSError as error:
        if chosen.debug:
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # a write that fails names no file
            full = DiskFull(error.filename or "the cache")
            _fail(str(full), full.exit_code, None)
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}; check the path and its permissions (--debug shows more)", 1, None)


def _fail(sentence: str, exit_code: int, trace: str | None) -> None:
    sentence = "\n".join(map(shown, sentence.splitlines()))
    sys.stderr.write(f"{trace}{sentence}\n" if trace else f"{sentence}\n")
    sys.exit(exit_code)


def _runner(experiment: str, quick: bool, board: list[str] | None, virtual: bool, settings: list[str] | None) -> Runner:
    """For commands that run nothing."""
    options = RunOptions(boards=board or (), virtual=virtual, settings=settings or ())
    return experiment_runner(chosen.file, experiment, quick, options, PlainReporter())


if __name__ == "__main__":
    main()
