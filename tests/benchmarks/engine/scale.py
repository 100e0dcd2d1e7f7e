"""A sweep far beyond this machine, worked out from a real run: requests to the store, bytes, and what is busy longest.

    python -m tests.benchmarks.engine.scale RUN_FOLDER [--points 10000] [--nodes 200] [--boards 100] [--step-ms 5.0]
        [--plan-ms 2.3] [--train-s 131] [--board-s 60] [--request-ms 30]
    python -m tests.benchmarks.engine.scale --driver [--points 10000] [--nodes 200]

RUN_FOLDER is a folder below runs/: its steps' files are published as entries through the real store code into a folder,
fetched by an empty cache and asked for in vain, and every request is counted. Times are arguments: measured ones with
their commands stand in pipeline/SCALE.md. --driver: one process drives as many steps at once, each of which sleeps for
a second in place of a node; and the table of as many points is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.digest import value_digest
from pipeline.engine.cache import Cache
from pipeline.engine.executor import OnEvent
from pipeline.engine.worker import Job
from pipeline.store.bucket import Bucket
from pipeline.store.shared import SharedStore
from tests.benchmarks.engine.overhead import trivial_sweep

_T = TypeVar("_T")
SHARED = ("prepare", "charting")  # of a sweep over trainings: made once


class CountingBucket(Bucket):
    """Counts what is asked of the store."""

    requests: Counter[str]

    def _tried(self, what: str, name: str, act: Callable[[], _T]) -> _T:
        self.__dict__.setdefault("requests", Counter())[what] += 1
        return super()._tried(what, name, act)

    def counted(self) -> int:
        total = sum(self.__dict__.setdefault("requests", Counter()).values())
        self.requests.clear()
        return total


@dataclass(frozen=True)
class StepCost:
    """Of one entry."""

    step: str
    files: int
    size_bytes: int
    publish: int
    fetch: int
    miss: int
    publish_ms: float  # processor time, files in memory


def step_costs(run: Path) -> list[StepCost]:
    facts = json.loads((run / "run.json").read_text())
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bucket = CountingBucket(f"file://{folder}/store")
        store = SharedStore(bucket, sys.stderr.write)
        here = Cache(Path(folder) / "here", sys.stderr.write, store)
        there = Cache(Path(folder) / "there", sys.stderr.write, SharedStore(bucket, sys.stderr.write))
        for step in facts["steps"]:
            key = value_digest(step["folder"])
            built = here.fresh_folder(key)
            shutil.copytree(run / step["folder"], built, dirs_exist_ok=True)
            bucket.counted()
            here.lookup(step["step"], key)
            miss = bucket.counted()
            begin = time.process_time()
            entry = here.publish(step["step"], key, built, {"ingredients": {}, "outputs": step["outputs"]})
            publish_ms = 1000 * (time.process_time() - begin)
            publish = bucket.counted()
            assert there.lookup(step["step"], key) is not None
            size = sum((entry.folder / name).stat().st_size for name in entry.files)
            found.append(StepCost(step["folder"], len(entry.files), size, publish, bucket.counted(), miss, publish_ms))
    return found


class SleepingNodes:
    """An executor whose steps take a second and no processor."""

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        time.sleep(1)
        (job.out_dir / "note.txt").write_text(str(job.sections))
        return {"note": "note.txt"}

    def stop(self) -> None: ...


def driven(points: int, nodes: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        sweep = trivial_sweep(Path(folder), points - 1)
        with sweep.folder.held():
            plans = sweep.plan()
            begin, cpu = time.monotonic(), time.process_time()
            results = sweep.run(SleepingNodes(), nodes, plans)
        seconds, cpu_s = time.monotonic() - begin, time.process_time() - cpu
        assert {result.state for result in results.values()} == {"done"}
        rows = tuple({f"figure_{number}": "1234.5678" for number in range(50)} for _ in range(2))
        filled = {point: replace(result, rows=rows) for point, result in results.items()}
        begin = time.process_time()
        table = sweep.folder.write_results(sweep.spec, filled)
        table_s = time.process_time() - begin
        return [
            f"{points} steps of 1 s, {nodes} at once: {seconds:.1f} s, {points / nodes:.1f} s without an engine; "
            f"{1000 * cpu_s / points:.2f} ms of processor time each",
            f"results.csv of {points} points on two boards, 50 columns: {table.stat().st_size / 1e6:.1f} MB, "
            f"{table_s:.2f} s of processor time each time it is written",
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--driver", action="store_true")
    for name, usual in (("points", 10_000), ("nodes", 200), ("boards", 100)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    for name, value in (
        ("step-ms", 5.0),
        ("plan-ms", 2.3),
        ("train-s", 131.0),
        ("board-s", 60.0),
        ("request-ms", 30.0),
    ):
        parser.add_argument(f"--{name}", type=float, default=value)
    chosen = parser.parse_args()
    if chosen.driver:
        sys.stdout.write("".join(f"{line}\n" for line in driven(chosen.points, chosen.nodes)))
        return 0
    if chosen.run is None:
        parser.error("needed a folder of a run, or --driver")
    costs = step_costs(chosen.run)
    for cost in costs:
        sys.stdout.write(
            f"{cost.step:24} {cost.files:3} files {cost.size_bytes:10,} B  requests: publish {cost.publish:3} "
            f"fetch {cost.fetch:3} miss {cost.miss:2}  {cost.publish_ms:6.1f} ms of processor time to publish\n"
        )
    for line in worked_out(costs, chosen):
        sys.stdout.write(f"{line}\n")
    return 0


def worked_out(costs: list[StepCost], asked: Any) -> list[str]:
    own = [cost for cost in costs if cost.step not in SHARED]
    steps, requests = len(own), sum(cost.publish + cost.miss for cost in own)
    size_bytes = sum(cost.size_bytes for cost in own)
    publish_ms = sum(cost.publish_ms for cost in own)
    kinds = max(1, sum(cost.step.startswith("measure") for cost in own))
    nodes_s = asked.points * asked.train_s / asked.nodes
    boards_s = asked.points * asked.board_s / (asked.boards / kinds)
    engine_s = asked.points * (steps * asked.step_ms + publish_ms) / 1000
    longest_s = max(nodes_s, boards_s, engine_s)
    return [
        f"a point: {steps} steps of its own, {requests} requests, {size_bytes:,} B, {publish_ms:.0f} ms to publish",
        f"planning: {asked.points * asked.plan_ms / 1000:.0f} s before the first step",
        f"engine: {asked.points * steps:,} steps, {engine_s:,.0f} s of processor time in one process",
        f"store: {asked.points * requests:,} requests, {asked.points * size_bytes / 1e9:,.0f} GB; one after the other "
        f"{asked.points * requests * asked.request_ms / 1000:,.0f} s at {asked.request_ms:g} ms each",
        f"nodes: {nodes_s:,.0f} s at {asked.train_s:g} s a point on {asked.nodes} of them",
        f"boards: {boards_s:,.0f} s at {asked.board_s:g} s a point on {asked.boards} boards of {kinds} kinds",
        f"all in all {longest_s:,.0f} s; busy then: nodes {nodes_s / longest_s:.0%}, "
        f"boards {boards_s / longest_s:.0%}, engine {engine_s / longest_s:.0%}; "
        f"{asked.points * requests / longest_s:,.0f} requests and "
        f"{asked.points * size_bytes / longest_s / 1e6:,.1f} MB a second",
    ]


if __name__ == "__main__":
    sys.exit(main())
