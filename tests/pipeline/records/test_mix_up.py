"""Nothing in the folder of a run ever comes from another run, whatever runs before, beside or after it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.records.store import RunStore, StoredRun
from tests.pipeline.conftest import ToyProject, make_toy

FLOUR = "{len(grains)} {state['dust'] if config.rounds else 0}"


def check_run(run: StoredRun) -> None:
    """Its files are those of its own run.json, all of them and no others."""
    listed = {
        f"{step['folder']}/{name}": sha256 for step in run.facts["steps"] for name, sha256 in step["files"].items()
    }
    found = {
        str(path.relative_to(run.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.folder.rglob("*")
        if path.is_file() and path.name != "run.json"
    }
    assert found == listed, run.id
    assert not [path for path in run.folder.rglob("*") if path.is_symlink()]


def check_bread(run: StoredRun) -> None:
    """Bread of this run's flour and heat, sold by this run: firmware and network, in the language of the toy."""
    flour, heat = run.path("flour"), run.facts["config"]["bake"]["heat"]
    for baked in (step for step in run.facts["steps"] if step["step"] == "bake"):
        assert flour is not None
        bread = run.path("bread", baked["board"])
        assert bread is not None
        assert bread.read_text() == f"{flour.read_text()} {heat} {baked['board']} virtual"
    if (table := run.path("table")) is not None:
        sold = table.read_text().splitlines()[1:]
        boards = [board["board"] for board in run.facts["boards"]]
        paths = {board: run.path("bread", board) for board in boards}
        assert sold == [f"{board} {path.read_text()}" for board, path in paths.items() if path is not None]
        assert len(sold) == len(boards)


def some_options(rng: random.Random) -> list[str]:
    chosen = [*rng.choice([[], ["--board", "stove"], ["--board", "kiln"]]), "--virtual"]
    for key, values in (("mill.rounds", (2, 3)), ("bake.heat", (200, 210)), ("grow.grains", (3, 4))):
        if rng.random() < 0.4:
            chosen += ["--set", f"{key}={rng.choice(values)}"]
    return chosen + (["--quick"] if rng.random() < 0.2 else [])


def kill_one(toy: ToyProject, options: list[str], rng: random.Random) -> None:
    """kill -9 at some moment of a run that has work to do."""
    command = toy.command("run", "bread", *options, "--force", "mill", "--set", "mill.pause_s=0.05")
    moment = rng.choice(["grow: ", "mill: running", "mill: ran", "bake[", "sell: "])
    with subprocess.Popen(command, cwd=toy.root, env=toy.env(), stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None and any(moment in line for line in run.stderr)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(run.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_runs_with_other_boards_overrides_failures_and_kills_never_mix(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    toy = make_toy(tmp_path)
    toy.edit("toy_mill.py", FLOUR, FLOUR + " {time.time_ns()}")  # other bytes every time, like training elsewhere
    store, final, states = RunStore(toy.root / "runs"), dict[Path, bytes](), set[str]()
    for act in rng.choices(["run", "force", "fail", "kill", "gc", "drop"], [6, 4, 2, 4, 1, 1], k=16):
        options = some_options(rng)
        if act == "run":
            toy.run("run", "bread", *options)
        elif act == "force":
            toy.run("run", "bread", *options, "--force", rng.choice(["mill", "bake"]))
        elif act == "fail":
            toy.run("run", "bread", *options, "--set", "mill.fail=true", check=1)
        elif act == "kill":
            kill_one(toy, options, rng)
        elif act == "gc":
            toy.run("gc", "--max-size", "1B")
        elif done := [run for run in store.runs() if run.state == "done"]:
            gone = rng.choice(done)
            store.drop(gone)
            final.pop(gone.folder / "run.json", None)
        runs = store.runs()
        states |= {run.state for run in runs}
        for run in runs:
            check_run(run)
            check_bread(run)
            record = run.folder / "run.json"
            assert final.setdefault(record, record.read_bytes()) == record.read_bytes(), "a record is final"
        for name in store.names():
            whole = [run.id for run in runs if run.name == name and run.state == "done"]
            latest = store.folder(name) / "latest"
            assert (os.readlink(latest) if latest.is_symlink() else None) == (whole[-1] if whole else None)
    assert states == {"done", "failed", "killed"}
    assert len({json.dumps(run.facts["config"]) for run in store.runs()}) > 3


def test_the_mix_up_of_old_cannot_happen(toy: ToyProject) -> None:
    toy.run("run", "bread", "--virtual")
    toy.run("run", "bread", "--board", "kiln", "--virtual", "--set", "mill.rounds=9")
    first, second = RunStore(toy.root / "runs").runs()
    assert {step["folder"] for step in first.facts["steps"]} == {"grow", "mill", "bake-stove", "bake-kiln", "sell"}
    assert {step["folder"] for step in second.facts["steps"]} == {"grow", "mill", "bake-kiln", "sell"}
    for run in (first, second):
        check_run(run)
        check_bread(run)


def test_a_run_outlives_the_cache(toy: ToyProject) -> None:
    toy.run("run", "bread")
    before = toy.artifacts()
    subprocess.run(["rm", "-rf", str(toy.root / ".pipeline")], check=True)
    assert toy.artifacts() == before and len(before) > 5


def test_files_are_copied_once_where_they_cannot_be_linked(toy: ToyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def refused(source: Path, target: Path) -> None:
        if ".pipeline" in str(source):
            raise OSError(18, "Invalid cross-device link")
        link(source, target)

    monkeypatch.setattr("os.link", refused)
    toy.run("run", "bread")
    first = toy.latest / "mill" / "flour.txt"
    assert first.stat().st_nlink == 1 and first.stat().st_mode & 0o777 == 0o444
    toy.run("run", "bread", "--set", "bake.heat=1")
    assert (toy.latest / "mill" / "flour.txt").stat().st_ino == first.stat().st_ino
    for run in RunStore(toy.root / "runs").runs():
        check_run(run)
        check_bread(run)
