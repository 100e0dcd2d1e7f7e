"""A sweep on a Ray cluster of this machine, undisturbed and with parts of the cluster killed, against the local one.

    python -m tests.benchmarks.engine.ray_cluster [--folder DIR] [--parts local,whole,killed]

Twelve points of kws_dscnn_s --quick with trainings of one epoch (three seeds, four numbers of measurements) run with
the local executor; then on two nodes with a worker that offers a virtual F767 and one that offers a virtual H743; then,
with an empty cache, once more, while a node is killed during its steps, the F767's worker during `measure`, and the
driver after that. Says for each promise whether it held; exit code 1 if one did not. With --folder parts can be
asked for one by one. A quarter of an hour on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hil.bench.locks import board_lock
from pipeline.store.manifest import sealed_record
from tests.pipeline.cluster.small_cluster import SmallCluster, small_cluster, wait_for

ROOT = Path(__file__).resolve().parents[3]
F767, H743 = "nucleo_f767zi", "nucleo_h743zi2"
SHORT = {
    "data.voices": "6", "data.prosodies": "1", "data.copies": "1", "network.width": "16", "network.blocks": "1",
    "prune.epochs": "1", "prune.start_step": "0", "prune.update_every": "1", "prune.threads": "1",
    "qat.epochs": "1", "qat.threads": "1", "measure.runs": "3..6",
}  # fmt: skip
POINTS = 12


@dataclass
class Promises:
    """What was looked at and whether it held."""

    failed: int = 0

    def check(self, what: str, held: bool, found: str = "") -> None:
        self.failed += not held
        sys.stdout.write(f"{'held' if held else 'BROKEN'}: {what}{f' ({found})' if found else ''}\n")
        sys.stdout.flush()


@dataclass
class Place:
    """A folder with pipeline.yaml, its cache and runs."""

    folder: Path
    cluster: SmallCluster | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "pipeline.yaml", self.folder)

    def command(self) -> list[str]:
        where = [] if self.cluster is None else ["--executor", "ray", "--address", self.cluster.address]
        settings = [f"--set={key}={value}" for key, value in SHORT.items()]
        words = ["sweep", "kws_dscnn_s", "--quick", "--virtual", "--seeds", "0..2", "--name", "twelve", *settings]
        return [sys.executable, "-m", "pipeline.cli", *words, "-j", "4", *where]

    def start(self) -> subprocess.Popen[bytes]:
        env = environment() | ({} if self.cluster is None else self.cluster.access)
        with (self.folder / "sweep.log").open("ab") as log:
            return subprocess.Popen(self.command(), cwd=self.folder, env=env, stdout=log, stderr=log)

    def sweep(self) -> float:
        begin = time.monotonic()
        assert self.start().wait() == 0, self.said[-3000:]
        return time.monotonic() - begin

    @property
    def said(self) -> str:
        return (self.folder / "sweep.log").read_text(errors="replace")

    def runs(self) -> list[dict[str, Any]]:
        records = (self.folder / "runs").glob("kws_dscnn_s-quick/*/run.json")
        return [json.loads(file.read_text()) for file in sorted(records) if not file.parent.is_symlink()]

    def digests(self) -> dict[tuple[str, ...], dict[str, str]]:
        """Overrides of a point and the folder of a step -> its files, of every run that was brought to its end."""
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for run in self.runs():
            if run["state"] == "done":
                for step in run["steps"]:
                    entry = self.folder / ".pipeline" / "entries" / step["step"] / step["key"] / "entry.json"
                    found[(*run["overrides"], step["step"], str(step["board"]))] = dict(
                        sealed_record(entry.read_text())[0]["files"]
                    )
        return found

    def ran(self) -> Counter[str]:
        """How often each step of a key was executed to its end."""
        return Counter(f"{s['step']}/{s['key']}" for run in self.runs() for s in run["steps"] if s["status"] == "ran")

    def entries(self) -> dict[str, int]:
        folders = (self.folder / ".pipeline" / "entries").glob("*/*")
        return {f"{path.parent.name}/{path.name}": path.stat().st_ino for path in folders}

    def logs(self, name: str) -> list[str]:
        logs = (self.folder / ".pipeline" / "logs").rglob("*.log")
        return [log.read_text(errors="replace") for log in logs if log.name == f"{name}.log"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def processes() -> dict[int, tuple[int, str]]:
    """Process -> its parent and its command."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found[int(folder.name)] = (int(status.rpartition(")")[2].split()[1]), command)
    return found


def steps_below(pid: int) -> Iterator[int]:
    """Processes of steps: children of a fork server that descends from `pid`."""
    known = processes()
    for process, (parent, command) in known.items():
        if "pipeline.engine.fork_server" not in command or parent not in known:
            continue
        if "pipeline.engine.fork_server" not in known[parent][1]:
            continue
        above = parent
        while above in known and above != pid:
            above = known[above][0]
        if above == pid:
            yield process


def compare(promises: Promises, local: Place, other: Place, at_kill: Collection[str] = ()) -> None:
    """`at_kill`: what was published when the driver was killed; the last of it may be in no record of a run."""
    expected, found = local.digests(), other.digests()
    promises.check(f"{POINTS} points, 12 steps each", len(found) == len(expected) == 12 * POINTS, f"{len(found)}")
    differing = sorted(
        {
            f"{key[-2]}/{name}"
            for key, files in expected.items()
            for name in files
            if found[key].get(name) != files[name]
        }
    )
    files = sum(map(len, expected.values()))
    promises.check(f"all {files} files have the digest of the local run", not differing, ", ".join(differing))
    ran = other.ran()
    promises.check("prepare ran once", sum(count for key, count in ran.items() if key.startswith("prepare/")) == 1)
    doubled, entries = [key for key, count in ran.items() if count != 1], other.entries().keys()
    untold = entries - ran.keys() - set(at_kill)
    promises.check("no step's result is lost or doubled", not (doubled or untold or ran.keys() - entries))


def whole(promises: Promises, cluster: SmallCluster, local: Place, folder: Path) -> None:
    place = Place(folder / "whole", cluster)
    seconds = place.sweep()
    sys.stdout.write(f"the sweep on the cluster took {seconds:.0f} s\n")
    compare(promises, local, place)
    for board in (F767, H743):
        logs = [text for step in ("flash", "measure") for text in place.logs(f"{step}[{board}]")]
        on_it = [text for text in logs if f"which offers twin:{board}]" in text]
        promises.check(f"every step on {board} ran on its node", bool(logs) and on_it == logs, f"{len(logs)} steps")
    others = [text for step in ("prune", "qat", "export", "report") for text in place.logs(step)]
    nodes = {found for text in others for found in re.findall(r"node (\w+)\]", text)}
    promises.check("the other steps ran on the two nodes, none on a board's", len(nodes) == 2, f"{len(others)} steps")


def killed(promises: Promises, cluster: SmallCluster, local: Place, folder: Path) -> None:
    place = Place(folder / "killed", cluster)
    driver = place.start()
    try:
        node = cluster.processes["two"].pid
        wait_for("a training on the second node", lambda: place.logs("prune") != [] and any(steps_below(node)), 900)
        time.sleep(2)
        lost = list(steps_below(node))
        cluster.kill("two")
        wait_for("the steps of the killed node are gone", lambda: not any(map(is_alive, lost)), 60)
        promises.check("a node was killed with its steps", bool(lost), f"{len(lost)} of them")
        cluster.start_node("three", 2)
        worker = cluster.processes["f767"].pid
        wait_for("measure on the F767", lambda: measures(place) and any(steps_below(worker)), 1800)
        lost = list(steps_below(worker))
        cluster.kill("f767")
        wait_for("its steps are gone", lambda: not any(map(is_alive, lost)), 60)
        wait_for("its lock is free", lambda: board_lock(f"twin-{F767}").holder() is None, 60)
        promises.check("the F767's worker was killed during measure, no lock is left", bool(lost))
        before = len(place.entries())
        wait_for("two more steps", lambda: len(place.entries()) >= before + 2 or driver.poll() is not None, 1800)
        promises.check("the driver still runs", driver.poll() is None, f"{len(place.entries())} steps are done")
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    head = cluster.processes["one"].pid
    wait_for("the driver's steps are gone", lambda: not any(steps_below(head)), 60)
    done = place.entries()
    sys.stdout.write(f"the driver was killed with {len(done)} steps done\n")
    seconds = place.sweep()
    sys.stdout.write(f"the same command ended in {seconds:.0f} s\n")
    again = [key for key, inode in done.items() if place.entries().get(key) != inode]
    promises.check("no finished step was repeated", not again, f"{len(done)} were finished")
    retried = len(re.findall(r"it is tried again from its checkpoint", place.said))
    promises.check("steps of lost nodes were tried again", retried >= 2, f"{retried} told")
    moved = [text for text in place.logs(f"measure[{F767}]") if "which offers" not in text]
    promises.check("the F767's jobs moved", bool(moved), f"{len(moved)} steps")
    compare(promises, local, place, done)


def measures(place: Place) -> bool:
    return any("[ran on" not in text for text in place.logs(f"measure[{F767}]"))


def is_alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--parts", default="local,whole,killed")
    chosen = parser.parse_args()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="ray_cluster."))).resolve()
    sys.stdout.write(f"in {folder}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    promises, local = Promises(), Place(folder / "local")
    if "local" in chosen.parts:
        sys.stdout.write(f"the local sweep took {local.sweep():.0f} s\n")
    for part in (whole, killed):
        if part.__name__ not in chosen.parts:
            continue
        sys.stdout.write(f"-- {part.__name__}\n")
        with small_cluster(folder / f"cluster_{part.__name__}", environment()) as cluster:
            for name in ("one", "two"):
                cluster.start_node(name, 2)
                cluster.wait_until_up(name)
            for name, board in (("f767", F767), ("h743", H743)):
                cluster.start_worker(name, local.folder / "pipeline.yaml", board)
            cluster.wait_until_up("f767", "h743")
            part(promises, cluster, local, folder)
    sys.stdout.write(f"{promises.failed} promises broken\n")
    return int(promises.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
