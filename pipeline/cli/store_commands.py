"""Commands around the shared store: send, fetch, look, sweep."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from pipeline.api.console import PlainReporter
from pipeline.cli.options import AsJson, Boards, ExperimentName, Quick, Settings, Virtual, chosen
from pipeline.cli.output import print_json, print_table
from pipeline.config import Project, load_project
from pipeline.engine.assembly import RunOptions, cache_root, experiment_runner, shared_store
from pipeline.engine.cache import Cache
from pipeline.errors import ConfigError
from pipeline.store.shared import SharedStore
from pipeline.units import parse_seconds

store = typer.Typer(help="The store that a lab shares: `store: s3://...` in pipeline.yaml.", no_args_is_help=True)


def push() -> None:
    """Send every entry of the local cache that the shared store has not."""
    project = load_project(chosen.file)
    shared, cache = _store(project), Cache(cache_root(project), PlainReporter().message)
    sent = same = 0
    try:
        with cache.in_use():
            for folder in sorted((cache.root / "entries").glob("*/*")):
                step, key = folder.parent.name, folder.name
                if cache.lookup(step, key) is None:
                    continue  # damaged: the next run that needs it mends it
                is_new = shared.push(step, key, folder)
                sent, same = sent + is_new, same + (not is_new)
    finally:
        shared.release()
    sys.stdout.write(f"{sent} entries sent to {shared.bucket}, {same} were there\n")


def pull(
    experiment: ExperimentName,
    quick: Quick = False,
    board: Boards = None,
    virtual: Virtual = False,
    settings: Settings = None,
) -> None:
    """Fetch what the shared store has of an experiment, and run nothing."""
    options = RunOptions(boards=board or (), virtual=virtual, settings=settings or ())
    runner = experiment_runner(chosen.file, experiment, quick, options, PlainReporter())
    _store(runner.project)
    with runner.cache.in_use():
        forecasts = runner.plan()
    here = sum(forecast.status == "cached" for forecast in forecasts)
    sys.stdout.write(f"{here} of {len(forecasts)} steps are in the local cache now\n")


@store.command()
def status(as_json: AsJson = False) -> None:
    """What the shared store holds, and who works with it."""
    found = _store(load_project(chosen.file)).status()
    if as_json:
        return print_json(dataclasses.asdict(found))
    print_table(
        [
            ("store", found.url),
            ("entries", str(found.entries)),
            ("objects", f"{found.objects}, {found.bytes / 1e6:.1f} MB"),
            ("checkpoints", str(found.checkpoints)),
            ("in use by", ", ".join(found.leases) or "nobody"),
        ]
    )


@store.command()
def gc(max_age: Annotated[str, typer.Option(help="remove what was published longer ago")] = "90d") -> None:
    """Remove old entries of the shared store and what nobody names; refused while somebody works with it."""
    try:
        age_s = float(parse_seconds(max_age))
    except ValueError as error:
        raise ConfigError(f"--max-age: {error}") from error
    swept = _store(load_project(chosen.file)).sweep(age_s)
    sys.stdout.write(
        f"removed {swept.removed} entries, {swept.freed_bytes / 1e6:.1f} MB; {swept.kept_bytes / 1e6:.1f} MB kept\n"
    )


def add_to(app: typer.Typer) -> None:
    app.command()(push)
    app.command()(pull)
    app.add_typer(store, name="store")


def _store(project: Project) -> SharedStore:
    found = shared_store(project, PlainReporter().message)
    if found is None:
        raise ConfigError(
            f"{project.file.name}: store: missing, needed a URL such as s3://bucket/lab or file:///mnt/lab "
            "(or in PIPELINE_STORE)"
        )
    return found
