"""kill -9 anywhere loses nothing: the next run ends with the artifacts of an undisturbed one."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.pipeline.conftest import ToyProject, make_toy

PAUSE = ["--set", "mill.pause_s=0.08"]


def _descendants(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(status.parent.name)
            found += [child, *_descendants(child)]
    return found


def _kill_after(toy: ToyProject, delay_s: float, victim: str) -> bool:
    """Start a run and kill -9 the engine, or one of its workers, after a while; False if it was over before."""
    process = subprocess.Popen(
        toy.command("run", "bread", *PAUSE), cwd=toy.root, env=toy.env(), stderr=subprocess.DEVNULL
    )
    try:
        process.wait(timeout=delay_s)
        return False
    except subprocess.TimeoutExpired:
        children = _descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):  # a worker that has just ended by itself
            os.kill(children[0] if victim == "worker" and children else process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        return True


@pytest.mark.slow
def test_kill_minus_nine_at_twenty_random_moments_changes_nothing(tmp_path):
    undisturbed = make_toy(tmp_path / "undisturbed")
    begin = time.monotonic()
    undisturbed.run("run", "bread", *PAUSE)
    whole_s = time.monotonic() - begin
    expected = undisturbed.artifacts()
    assert len(expected) == 6 + 1 + 1 + 2 + 2

    rng = random.Random(20)
    kills = 0
    toy = make_toy(tmp_path / "disturbed")
    for attempt in range(40):
        if kills == 20:
            break
        kills += _kill_after(toy, rng.uniform(0.05, whole_s), rng.choice(["engine", "engine", "worker"]))
        if attempt % 2:  # every other time the killed run is itself the continuation of a killed one
            toy.run("run", "bread", *PAUSE)
            assert toy.artifacts() == expected
            toy.run("clean", "--yes")
    assert kills == 20
    toy.run("run", "bread", *PAUSE)
    assert toy.artifacts() == expected
    assert not list((toy.root / ".pipeline" / "checkpoints").glob("*"))


def test_a_killed_training_continues_from_its_last_round(toy):
    process = subprocess.Popen(
        toy.command("run", "bread", "--set", "mill.pause_s=0.3"), cwd=toy.root, env=toy.env(), stderr=subprocess.DEVNULL
    )
    checkpoints = toy.root / ".pipeline" / "checkpoints"
    while not list(checkpoints.glob("*/checkpoint-*")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    toy.run("run", "bread", "--set", "mill.pause_s=0.3")
    assert int((toy.root / "resumed.log").read_text().split()[0]) >= 1
    assert (toy.latest / "mill" / "flour.txt").read_text().startswith("6 ")


def test_no_worker_lives_on_behind_a_killed_run(toy):
    with toy.started("run", "bread", "--set", "mill.pause_s=5", until="mill: running") as process:
        time.sleep(0.3)
        workers = _descendants(process.pid)
        assert workers
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_killed_worker_is_one_clear_sentence(toy):
    toy.edit(
        "toy_mill.py",
        "if config.fail:",
        "import os\n    if config.fail:\n        os.kill(os.getpid(), 9)\n    if config.fail:",
    )
    failed = toy.run("run", "bread", "--set", "mill.fail=true", check=1)
    assert "mill: its process was ended by SIGKILL before it was done; was memory short?; log: " in failed.stderr
