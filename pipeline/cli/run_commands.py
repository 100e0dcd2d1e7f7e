"""Commands around runs: make one, list them, keep and drop them, and free the disk of what nobody needs."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.api.console import PlainReporter, reporter_for_stderr
from pipeline.api.run import completed
from pipeline.cli.options import (
    Address,
    AsJson,
    Boards,
    ExecutorName,
    ExperimentName,
    MostJobs,
    Quick,
    Settings,
    Virtual,
    chosen,
    chosen_place,
)
from pipeline.cli.output import print_answer, print_json, print_lines
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions, cache_root, experiment_runner
from pipeline.engine.cache import Cache, remove_tree, tree_bytes
from pipeline.engine.recording import run_store
from pipeline.engine.runner import Outcome, Runner
from pipeline.errors import ConfigError
from pipeline.records.listing import run_brief, run_table
from pipeline.records.store import RunStore, StoredRun
from pipeline.records.tracking import check_tracker
from pipeline.records.tracking import track as track_run
from pipeline.records.tracking_file import append_rows
from pipeline.text import shown
from pipeline.units import parse_bytes, parse_seconds

INTERRUPTED = 130  # what shells say after Ctrl-C


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
    append: Annotated[
        Path | None, typer.Option("--append", help="add the rows of this run to a file", metavar="FILE.csv")
    ] = None,
    track: Annotated[
        str | None, typer.Option("--track", help="log the run there when it is done", metavar="mlflow:URI")
    ] = None,
    jobs: MostJobs = None,
    executor: ExecutorName = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run an experiment: whatever is not cached, in order."""
    begin = time.monotonic()
    tracker = None if track is None else check_tracker(track)
    with reporter_for_stderr() as reporter:
        place = chosen_place(executor, address, jobs, reporter.message)
        options = RunOptions(
            boards=board or (),
            virtual=virtual,
            settings=settings or (),
            start=start,
            only=only,
            force=force or (),
            **place.options,
        )
        runner = experiment_runner(chosen.file, experiment, quick, options, reporter)
        try:
            outcomes = runner.run(place.jobs)
        except KeyboardInterrupt:
            reporter.message(_interrupted(runner))
            raise typer.Exit(INTERRUPTED) from None
    if append is not None:
        append_rows(append, runner.record.facts["rows"])
    if tracker is not None:
        run_done = StoredRun(runner.record.folder, runner.record.facts)
        named = [path for name in runner.project.files_worth_opening if (path := run_done.path(name)) is not None]
        sys.stderr.write(f"{shown(track_run(run_done, tracker, named))}\n")
    _print_result(runner, outcomes, as_json)
    cached = sum(outcome.status == "cached" for outcome in outcomes)
    sys.stderr.write(f"{len(outcomes)} steps, {cached} cached, {time.monotonic() - begin:.1f} s\n")
    sys.stderr.writelines(f"{line}\n" for line in _worth_opening(runner))


def runs(
    experiment: Annotated[str | None, typer.Argument(help="only those of this experiment")] = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", help="take a dropped run back", metavar="ID")] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="let gc remove it; or `unfinished`, `older:30d`", metavar="ID"),
    ] = None,
    dropped: Annotated[bool, typer.Option("--dropped", help="those that the next gc removes")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs that are kept, or decide which are."""
    store = run_store(load_project(chosen.file))
    wanted = [run for run in store.runs(dropped=dropped) if experiment in (None, run.name, run.facts["experiment"])]
    if experiment is not None and not wanted and not keep:
        what, known = "dropped runs" if dropped else "runs", ", ".join(store.names()) or "none"
        raise ConfigError(f"{experiment}: has no {what} here; those that have runs: {known}")
    for text in keep or ():
        found = store.find(text, dropped=True)
        store.keep(found)
        sys.stdout.write(f"{found.name}/{found.id}: kept\n")
    for found in [run for text in drop or () for run in _to_drop(store, wanted, text)]:
        store.drop(found)
        sys.stdout.write(f"{found.name}/{found.id}: dropped; gc removes it, --keep {found.id} takes it back\n")
    if keep or drop:
        return
    if as_json:
        print_json([run_brief(run) for run in wanted])
    else:
        print_lines(run_table(wanted))


def compare(
    subjects: Annotated[
        list[str],
        typer.Argument(help="runs (id, latest, latest~1, EXPERIMENT/latest, folder) or CSV files", metavar="RUN..."),
    ],
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help="exit code 1 at such a change: 'latency_ms > 2%'", metavar="EXPR"),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="for a comment on a change")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="write a page", metavar="FILE.html")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold runs against the first one: what changed, what is more than noise."""
    project = load_project(chosen.file)
    store = run_store(project)
    named = [_subject(store, text) for text in subjects]
    answer = project.tool("compare")(named, fail_on or (), markdown, html)
    print_answer(answer, as_json)
    if answer.record["failed"]:
        raise typer.Exit(1)


def gc(
    max_age: Annotated[str, typer.Option(help="remove what was not used for this long")] = "30d",
    max_size: Annotated[
        str | None, typer.Option(help="then remove the longest unused until this holds, such as 10GB")
    ] = None,
) -> None:
    """Remove dropped runs, and old entries of the cache that no kept run needs."""
    age_s = _quantity("--max-age", max_age, parse_seconds)
    most = None if max_size is None else int(_quantity("--max-size", max_size, parse_bytes))
    project = load_project(chosen.file)
    cache, store = Cache(cache_root(project), PlainReporter().message), run_store(project)
    with cache.alone():
        gone = store.remove_dropped()
    needed = {key for run in store.runs() for key in run.keys}
    swept = cache.sweep(max_age_s=age_s, max_bytes=most, needed=needed)
    sys.stdout.write(
        f"removed {gone} dropped runs and {swept.removed} entries, {swept.freed_bytes / 1e6:.1f} MB; "
        f"{swept.kept_bytes / 1e6:.1f} MB kept\n"
    )
    if most is not None and swept.kept_bytes > most:
        sys.stdout.write("the rest belongs to runs that are kept: pipeline runs --drop ID, then gc again\n")


def clean(yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:
    """Remove the whole cache and all runs."""
    project = load_project(chosen.file)
    cache, store = Cache(cache_root(project), PlainReporter().message), run_store(project)
    folders = [cache.root / name for name in ("entries", "checkpoints", "tmp", "history", "logs")]
    freed = sum(tree_bytes(folder) for folder in folders if folder.exists())
    what = f"{cache.root} ({freed / 1e6:.1f} MB) and {len(store.runs())} runs in {store.root}"
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"clean removes {what}, and cannot ask here; add --yes")
        typer.confirm(f"Remove {what}?", abort=True)
    with cache.alone():
        for folder in (*folders, store.root):
            remove_tree(folder)
    sys.stdout.write(f"removed {freed / 1e6:.1f} MB\n")


def add_to(app: typer.Typer) -> None:
    for function in (run, runs, compare, gc, clean):
        app.command()(function)


def _subject(store: RunStore, text: str) -> tuple[str, Path]:
    """Its name in tables, and where it is."""
    path = Path(text)
    if path.suffix == ".csv" and path.is_file():
        return path.name, path
    found = store.find(text)
    return found.id, found.folder


def _to_drop(store: RunStore, wanted: Sequence[StoredRun], text: str) -> list[StoredRun]:
    if text == "unfinished":
        return [run for run in wanted if run.state in ("failed", "killed")]
    if text.startswith("older:"):
        age_s = _quantity("--drop", text.removeprefix("older:"), parse_seconds)
        return [run for run in wanted if run.age_s > age_s and run.state != "running"]
    return [store.find(text)]


def _interrupted(runner: Runner) -> str:
    facts = runner.record.facts
    done, nodes = len(facts["steps"]), len(runner.nodes)
    return (
        f"interrupted: {done} of {nodes} steps are kept, and the last epoch of a training; "
        f"go on with: {facts['command']}"
    )


def _worth_opening(runner: Runner) -> list[str]:
    """The files to look at, and what to do next."""
    record = runner.record
    run = StoredRun(Path("runs") / record.facts["name"] / record.id, record.facts)
    paths = [path for name in runner.project.files_worth_opening if (path := run.path(name)) is not None]
    ahead = f"pipeline runs {shlex.quote(record.facts['name'])}"
    if record.before is not None:
        ahead = f"pipeline compare {record.before} {record.id}"
    lines = [f"every file is in {run.folder}/", *(f"  {path}" for path in paths), f"next: {ahead}"]
    return [shown(line) for line in lines]


def _print_result(runner: Runner, outcomes: Sequence[Outcome], as_json: bool) -> None:
    done = completed(runner, outcomes)
    if not as_json:
        return print_lines(done.text.splitlines())
    print_json(
        {
            **{"experiment": done.experiment, "quick": done.quick, "id": done.id, "folder": str(done.folder)},
            **{"steps": done.step_records(), "rows": runner.record.facts["rows"]},
        }
    )


def _quantity(option: str, text: str, parse: Any) -> float:
    try:
        return float(parse(text))
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error
