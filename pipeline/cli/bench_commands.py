"""Commands around boards and their twins: what is attached, all of it in CI, and where host and device part."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.api.console import PlainReporter, reporter_for_stderr
from pipeline.api.execution import finished_run
from pipeline.cli.options import (
    CORES,
    Address,
    AsJson,
    ExecutorName,
    Jobs,
    Network,
    OneBoard,
    Quick,
    Settings,
    Virtual,
    chosen,
    chosen_place,
)
from pipeline.cli.output import print_answer, print_json, print_table
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions
from pipeline.engine.runner import artifact_paths
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.ci.jobs import TaskResult

Data = Literal["dtcm", "ram"]
BENCH_FILE = "bench.yaml"  # beside pipeline.yaml
_FLASHED = "flash"  # the step after which a device can be asked


def boards(as_json: AsJson = False) -> None:
    """List debug probes by serial number: board, port, drive, instrument of bench.yaml, and who uses them."""
    project = load_project(chosen.file)
    print_answer(project.tool("boards")(project.root / BENCH_FILE), as_json)


def diff(
    network: Network,
    board: OneBoard,
    virtual: Virtual = False,
    quick: Quick = False,
    most_inputs: Annotated[int, typer.Option("--inputs", min=1, help="how many of the golden inputs")] = 3,
    settings: Settings = None,
    jobs: Jobs = CORES,
    as_json: AsJson = False,
) -> None:
    """Run host and device layer by layer and name the first one that differs; exit code 1 if there is one."""
    options = RunOptions(boards=(board,), virtual=virtual, settings=settings or (), until=_FLASHED)
    runner, outcomes = finished_run(chosen.file, network, quick, options, jobs)
    source = "virtual" if virtual else "hardware"
    answer = runner.project.tool("diff")(artifact_paths(outcomes), board, source, most_inputs)
    print_answer(answer, as_json)
    if not answer.record["identical"]:
        raise typer.Exit(1)


def bringup(
    board: Annotated[str, typer.Argument(help="an attached board, or with --virtual its twin", metavar="BOARD")],
    virtual: Virtual = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for the record; reports quote that of ./bringup", metavar="DIR")
    ] = None,
    probe: Annotated[str, typer.Option("--probe", help="serial number, where several are attached")] = "",
    as_json: AsJson = False,
) -> None:
    """Guide a board through its first day: what was expected, found and is to do; exit code 1 if a check fails."""
    project = load_project(chosen.file)
    project.refuse_unknown_board("bringup", board)
    answer = project.tool("bringup")(board, virtual, out or project.root / "bringup", probe)
    print_answer(answer, as_json)
    if not answer.record["ok"]:
        raise typer.Exit(1)


def calibrate(
    board: Annotated[str, typer.Argument(help="an attached board, or with --virtual its twin", metavar="BOARD")],
    virtual: Virtual = False,
    out: Annotated[Path | None, typer.Option("--out", help="a folder of your own for calibration.yaml")] = None,
    probe: Annotated[str, typer.Option("--probe", help="serial number, where several are attached")] = "",
    power: Annotated[
        bool | None, typer.Option("--power/--no-power", help="fit power too; by itself where an instrument is tied")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the cycle model to a board: loops and networks run on it; others, not in the fit, say how good it is."""
    project = load_project(chosen.file)
    project.refuse_unknown_board("calibrate", board)
    bench = project.root / BENCH_FILE
    print_answer(project.tool("calibrate")(board, virtual, out, probe, bench, power), as_json)


def profile(
    image: Annotated[Path, typer.Argument(help="a Cortex-M7 ELF for QEMU's mps2-an500", metavar="FILE.elf")],
    board: Annotated[str, typer.Option("--board", help="whose caches and clock", metavar="NAME")],
    data: Annotated[Data, typer.Option("--data", help="its data memory: dtcm, or ram behind the cache")] = "ram",
    memory: Annotated[
        list[str] | None,
        typer.Option("--memory", help="a part of it otherwise: flash, ram, dtcm", metavar="ADDRESS:BYTES:KIND"),
    ] = None,
    marks: Annotated[
        str | None,
        typer.Option("--marks", help="tell parts apart by stores to this array, not functions", metavar="SYMBOL"),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="seconds until it must have ended")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Run any program on the twin's machine until it exits: modelled cycles, fills, write-backs by function or mark."""
    project = load_project(chosen.file)
    project.refuse_unknown_board("profile", board)
    print_answer(project.tool("profile")(image, board, data, timeout_s, memory or (), marks), as_json)


def ci(
    on: Annotated[
        str, typer.Option("--boards", help="virtual, attached, all, or names of attached boards", metavar="WHICH")
    ] = "virtual",
    experiments: Annotated[
        list[str] | None, typer.Option("--experiments", help="instead of those of the section ci", metavar="NAME")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="figures to compare with", metavar="FILE.csv")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="write JUnit XML", metavar="FILE.xml")] = None,
    table: Annotated[Path | None, typer.Option("--csv", help="write one row a board", metavar="FILE.csv")] = None,
    update_baseline: Annotated[bool, typer.Option("--update-baseline", help="make this run the baseline")] = False,
    settings: Settings = None,
    executor: ExecutorName = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run all configured experiments on boards or twins and compare with the baseline; exit code 1 if one got worse."""
    from pipeline.ci.baseline import read_baseline, rows_text, write_baseline
    from pipeline.ci.jobs import ci_config, run_task, suites_of, tasks_of
    from pipeline.ci.junit import write_junit

    project = load_project(chosen.file)
    config = ci_config(project)
    committed = baseline or (None if config.baseline is None else project.root / config.baseline)
    if update_baseline and committed is None:
        raise ConfigError("--update-baseline: no file to write to; give --baseline FILE or set ci.baseline")
    if baseline is not None and not baseline.exists() and not update_baseline:
        raise ConfigError(f"--baseline {baseline}: no such file; make it with --update-baseline")
    known, tolerances = {} if committed is None else read_baseline(committed), config.all_tolerances()
    only = [name for given in experiments or () for name in given.split(",") if name]
    results = []
    with reporter_for_stderr() as reporter:
        place = chosen_place(executor, address, None, reporter.message)
        options = RunOptions(boards=(), virtual=False, settings=settings or (), **place.options)
        for task in tasks_of(project, config, on, only, options, reporter):
            reporter.message(f"ci: {task}")
            before = known.get(task.identity) if not update_baseline else None
            results.append(run_task(task, config.retries, before, tolerances))
    rows = [result.as_row() for result in results]
    if junit is not None:
        write_junit(junit, suites_of(results))
    if table is not None:
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(rows_text(rows, list(dict.fromkeys(column for row in rows for column in row))))
    if update_baseline and committed is not None:
        write_baseline(committed, [result.row for result in results if result.row is not None], list(tolerances))
    if as_json:
        print_json([result.as_record() for result in results])
    else:
        _print_results(results)
    if any(result.status != "ok" for result in results):
        raise typer.Exit(1)


def worker(
    address: Annotated[str, typer.Option("--address", help="of the Ray cluster to join", metavar="HOST:PORT")],
    virtual: Annotated[
        list[str] | None, typer.Option("--virtual", help="offer the twin of this board, too", metavar="NAME")
    ] = None,
) -> None:
    """Offer the boards of this machine to a Ray cluster until Ctrl-C, by kind and by the probe's serial number."""
    from pipeline.cluster.board_worker import BoardWorker

    project = load_project(chosen.file)
    for name in virtual or ():
        project.refuse_unknown_board("--virtual", name)
    BoardWorker(address, project.function("offer")(), virtual or (), PlainReporter().message).serve()


def _print_results(results: Sequence[TaskResult]) -> None:
    titles = ("experiment", "board", "source", "status", "retries", "compared", "worse", "better")
    print_table([titles, *(result.as_cells() for result in results)])
    for result in results:
        for trouble in result.retries:
            sys.stdout.write(f"{result.task}: infrastructure fault, tried again: {trouble}\n")
        if result.row is None:
            sys.stdout.write(f"{result.task}: {result.error}\n")
        for one in result.comparisons:
            if one.verdict in ("regression", "lost", "improved"):
                sys.stdout.write(f"{result.task}: {one.verdict}: {one}\n")


def add_to(app: typer.Typer) -> None:
    for function in (boards, bringup, calibrate, ci, diff, profile, worker):
        app.command()(function)
