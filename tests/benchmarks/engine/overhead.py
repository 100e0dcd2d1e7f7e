"""What the engine itself costs: a step that does nothing, and the plan of a large sweep that is all cached.

    python -m tests.benchmarks.engine.overhead [--points 1000] [-j 2]

First a project with one trivial step: a sweep of as many points runs, each in a process of its own, recorded and kept
as a run; then the same again, all up to date; where Ray is installed the same as tasks of a cluster on this machine.
All of it with files in memory (/dev/shm, where there is one), then once on the disk, which has to confirm six writes of
each step. Then the real graph of kws_dscnn_s on two boards: every entry is planted in a cache of its own (small files
under the right keys), and the sweep is planned. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.config import Project
from pipeline.digest import value_digest
from pipeline.engine.assembly import RunOptions, Workshop
from pipeline.engine.cache import Entry
from pipeline.engine.dag import Node
from pipeline.engine.executor import Executor, LocalExecutor
from pipeline.engine.ingredients import ingredients_of
from pipeline.sweeps.display import PlainBoard
from pipeline.sweeps.spec import asked_spec
from pipeline.sweeps.sweep import Sweep

ROOT = Path(__file__).resolve().parents[3]
STEP_LIMIT_MS, PLAN_LIMIT_S = 5.0, 3.0
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
STEP = """
from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Config, stage


class NothingConfig(Config):
    number: int = 0


@dataclass(frozen=True)
class Done:
    note: Path


@stage("nothing")
def run(*, config: NothingConfig, out_dir: Path) -> Done:
    (out_dir / "note.txt").write_text(str(config.number))
    return Done(note=out_dir / "note.txt")
"""


class _Mute(PlainBoard):
    def write(self, text: str) -> None: ...


def trivial_sweep(folder: Path, last: int) -> Sweep:
    """A project with one step, in `folder`, and its settings from 0 to `last`."""
    if not (folder / "nothing_step.py").exists():
        (folder / "nothing_step.py").write_text(STEP)
        (folder / "pipeline.yaml").write_text("steps: {nothing: nothing_step}\nexperiments: {idle: {}}\n")
        sys.path.insert(0, str(folder))
    board = _Mute()
    workshop = Workshop(folder / "pipeline.yaml", board.message)
    spec = asked_spec(workshop.project, ["idle"], [f"nothing.number=0..{last}"], name="idle")
    return Sweep(workshop, spec, RunOptions(boards=(), virtual=True, settings=()), board)


def trivial_steps(
    points: int, jobs: int, folder: Path, make_executor: Callable[[Project], Executor]
) -> tuple[float, float, float]:
    """Seconds to run them after the first one, processor seconds of that, and seconds to plan them again."""
    warm = trivial_sweep(folder, points)  # one more: its first point starts the server
    with warm.folder.held():
        plans = warm.plan()
        executor = make_executor(warm.workshop.project)
        executor_kept = _Kept(executor)
        warm.run(executor_kept, jobs, plans[:1])
        begin, cpu = time.monotonic(), sum(os.times()[:4])
        results = warm.run(executor_kept, jobs, plans[1:])
        seconds = time.monotonic() - begin
        executor.stop()  # the server's time, and that of its workers, is known once it has ended
        cpu_s = sum(os.times()[:4]) - cpu
    failures = [result.error for result in results.values() if result.error is not None]
    assert (len(results), failures[:1]) == (points + 1, []), (len(results), failures[:1])
    begin = time.monotonic()
    assert {plan.status for plan in trivial_sweep(folder, points).plan()} == {"up to date"}
    return seconds, cpu_s, time.monotonic() - begin


class _Kept:
    """An executor that outlives the sweep, so that its start is not counted."""

    def __init__(self, executor: Executor) -> None:
        self.run = executor.run

    def stop(self) -> None: ...


def real_plan(points: int, folder: Path) -> tuple[float, float]:
    """Seconds to plan the sweep of the real graph, everything cached, and processor seconds of that."""
    os.environ["PIPELINE_CACHE"] = str(folder / "cache")
    board = _Mute()

    def swept() -> Sweep:
        workshop = Workshop(ROOT / "pipeline.yaml", board.message)
        settings = [f"prune.rate=1..{points // 20}"]
        spec = asked_spec(workshop.project, ["kws_dscnn_s"], settings, "0..19", quick=True)
        return Sweep(workshop, spec, RunOptions(boards=(), virtual=True, settings=()), board)

    planted = swept()
    for point in planted.points:
        _plant(planted, point)
    begin, cpu = time.monotonic(), time.process_time()
    plans = swept().plan()
    seconds, cpu_s = time.monotonic() - begin, time.process_time() - cpu
    assert len(plans) == points // 20 * 20 and {plan.status for plan in plans} == {"cached"}
    return seconds, cpu_s


def _plant(sweep: Sweep, point: object) -> None:
    runner = sweep._runner(point, reporter=None, executor=None, code=sweep.workshop.code)  # type: ignore[arg-type]
    entries: dict[Node, Entry] = {}
    for node in runner.nodes:
        ingredients = ingredients_of(node, runner.dag, runner.experiment, runner.code, entries)
        key = value_digest(ingredients)
        entry = runner.cache.lookup(node.step, key)
        if entry is None:
            built = runner.cache.fresh_folder(key)
            outputs = {name: f"{name}.txt" for name in runner.dag.stage(node).outputs}
            for name, path in outputs.items():
                (built / path).write_text(f"{name} {key}")
            entry = runner.cache.publish(node.step, key, built, {"ingredients": ingredients, "outputs": outputs})
        entries[node] = entry


def ray_step_ms(points: int, jobs: int) -> float | None:
    """The same trivial steps on a cluster of this machine; None without Ray."""
    if importlib.util.find_spec("ray") is None:
        return None
    from pipeline.cluster.connection import Cluster
    from pipeline.cluster.executor import RayExecutor

    cluster = Cluster(None)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ran_s, _, _ = trivial_steps(points, jobs, Path(folder), lambda project: RayExecutor(cluster, project, print))
    cluster.ray.shutdown()
    return 1000 * ran_s / points


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY) as first, tempfile.TemporaryDirectory() as on_disk:
        ran_s, cpu_s, again_s = trivial_steps(chosen.points, chosen.jobs, Path(first), lambda _: LocalExecutor())
        step_ms = 1000 * ran_s / chosen.points
        on_ray_ms = ray_step_ms(chosen.points, chosen.jobs)
        disk_s, _, _ = trivial_steps(chosen.points, chosen.jobs, Path(on_disk), lambda _: LocalExecutor())
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        plan_s, plan_cpu_s = real_plan(chosen.points, Path(folder))
    sys.stdout.write(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, files in {MEMORY or 'the folder for such'}\n"
        f"{chosen.points} trivial steps, -j{chosen.jobs}: {step_ms:.2f} ms each (limit {STEP_LIMIT_MS}), "
        f"{1000 * cpu_s / chosen.points:.2f} ms of processor time\n"
        f"the same in {tempfile.gettempdir()}: {1000 * disk_s / chosen.points:.2f} ms each\n"
        + ("" if on_ray_ms is None else f"the same on a Ray cluster of this machine: {on_ray_ms:.2f} ms each\n")
        + f"the same sweep planned again, up to date: {again_s:.2f} s (limit {PLAN_LIMIT_S})\n"
        f"{chosen.points} points of kws_dscnn_s, all cached, planned in {plan_s:.2f} s (limit {PLAN_LIMIT_S}), "
        f"{plan_cpu_s:.2f} s of processor time\n"
    )
    return int(step_ms > STEP_LIMIT_MS or max(again_s, plan_s) > PLAN_LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
