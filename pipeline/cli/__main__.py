"""The command line. The only place that prints results, reads the environment and sets the exit code."""

from __future__ import annotations

import csv
import dataclasses
import errno
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.api.console import PlainReporter, reporter_for_stderr
from pipeline.api.project import make_importable
from pipeline.cli import bench_commands, init_command, model_commands
from pipeline.cli.options import CORES, AsJson, Boards, ExperimentName, Jobs, Quick, Settings, StepName, Virtual, chosen
from pipeline.cli.output import print_json, print_table
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions, cache_root, experiment_runner, load_experiments
from pipeline.engine.cache import Cache, remove_tree, tree_bytes
from pipeline.engine.dag import load_steps
from pipeline.engine.executor import StepFailed
from pipeline.engine.runner import Outcome, Runner, artifact_paths
from pipeline.errors import ConfigError, DiskFull, PipelineError
from pipeline.units import parse_bytes, parse_seconds

app = typer.Typer(
    help="From training to on-device measurement, in one command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


init_command.add_to(app)
model_commands.add_to(app)
bench_commands.add_to(app)


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
def run(
    experiment: ExperimentName,
    quick: Quick = False,
    board: Boards = None,
    virtual: Virtual = False,
    settings: Settings = None,
    start: Annotated[
        str | None, typer.Option("--from", help="take everything before this step from the cache", metavar="STEP")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="this step alone, its inputs from the cache", metavar="STEP")
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option("--force", help="run this step even if it is cached", metavar="STEP")
    ] = None,
    jobs: Jobs = CORES,
    as_json: AsJson = False,
) -> None:
    """Run an experiment: whatever is not cached, in order."""
    begin = time.monotonic()
    with reporter_for_stderr() as reporter:
        options = RunOptions(
            boards=board or (),
            virtual=virtual,
            settings=settings or (),
            start=start,
            only=only,
            force=force or (),
        )
        runner = experiment_runner(chosen.file, experiment, quick, options, reporter)
        outcomes = runner.run(jobs)
    _print_result(runner, outcomes, as_json)
    cached = sum(outcome.status == "cached" for outcome in outcomes)
    folder = f"runs/{runner.experiment.run_name}"
    sys.stderr.write(
        f"{len(outcomes)} steps, {cached} cached, {time.monotonic() - begin:.1f} s; every file is in {folder}/\n"
    )


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
    forecasts = _runner(experiment, quick, board, virtual, settings).plan()
    if as_json:
        print_json([{"step": str(item.node), "status": item.status, "reason": item.reason} for item in forecasts])
        return
    words = {"cached": "cached", "run": "will run", "open": "may run"}
    print_table([(str(item.node), words[item.status], item.reason) for item in forecasts])


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
    found = list(findings(project.root, cache_root(project), load_steps(project.steps), project.programs))
    if as_json:
        print_json([dataclasses.asdict(item) for item in found])
    else:
        print_table([("ok" if not item.fix else "FIX", item.check, item.found, item.fix) for item in found])
    if any(item.fix for item in found):
        raise typer.Exit(1)


@app.command()
def gc(
    max_age: Annotated[str, typer.Option(help="remove what was not used for this long")] = "30d",
    max_size: Annotated[
        str | None, typer.Option(help="then remove the longest unused until this holds, such as 10GB")
    ] = None,
) -> None:
    """Remove old entries from the cache."""
    cache = Cache(cache_root(load_project(chosen.file)), PlainReporter().message)
    swept = cache.sweep(
        max_age_s=_quantity("--max-age", max_age, parse_seconds),
        max_bytes=None if max_size is None else int(_quantity("--max-size", max_size, parse_bytes)),
    )
    sys.stdout.write(
        f"removed {swept.removed} entries, {swept.freed_bytes / 1e6:.1f} MB; {swept.kept_bytes / 1e6:.1f} MB kept\n"
    )


@app.command()
def clean() -> None:
    """Remove the whole cache and the runs folder."""
    project = load_project(chosen.file)
    cache = Cache(cache_root(project), PlainReporter().message)
    folders = [cache.root / name for name in ("entries", "checkpoints", "tmp", "history", "logs")]
    with cache.alone():
        freed = sum(tree_bytes(folder) for folder in folders if folder.exists())
        for folder in (*folders, project.root / "runs"):
            remove_tree(folder)
    sys.stdout.write(f"removed {freed / 1e6:.1f} MB\n")


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
    sys.stderr.write(f"{trace}{sentence}\n" if trace else f"{sentence}\n")
    sys.exit(exit_code)


def _runner(experiment: str, quick: bool, board: list[str] | None, virtual: bool, settings: list[str] | None) -> Runner:
    """For commands that run nothing."""
    options = RunOptions(boards=board or (), virtual=virtual, settings=settings or ())
    return experiment_runner(chosen.file, experiment, quick, options, PlainReporter())


def _print_result(runner: Runner, outcomes: Sequence[Outcome], as_json: bool) -> None:
    paths = artifact_paths(outcome for outcome in outcomes if outcome.node.target is None)
    show = runner.project.show
    if not as_json:
        if (table := paths.get(show.get("table", ""))) is not None:
            sys.stdout.write(table.read_text())
        return
    rows = paths.get(show.get("rows", ""))
    print_json(
        {
            "experiment": runner.experiment.name,
            "quick": runner.experiment.quick,
            "steps": [_step_record(outcome) for outcome in outcomes],
            "rows": list(csv.DictReader(rows.read_text().splitlines())) if rows is not None else [],
        }
    )


def _step_record(outcome: Outcome) -> dict[str, Any]:
    target = outcome.node.target
    return {
        "step": outcome.node.step,
        "board": target.board if target else None,
        "source": target.source if target else None,
        "status": outcome.status,
        "seconds": round(outcome.seconds, 3),
        "folder": str(outcome.entry.folder),
    }


def _quantity(option: str, text: str, parse: Any) -> float:
    try:
        return float(parse(text))
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


if __name__ == "__main__":
    main()
