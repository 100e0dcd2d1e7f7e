"""The toy project on a Ray cluster of this machine: the same files as locally, whatever is killed meanwhile."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hil.bench.locks import board_lock
from tests.pipeline.cluster.small_cluster import SmallCluster, small_cluster, wait_for
from tests.pipeline.conftest import ToyProject, make_toy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'tinyml-pipeline[ray]'"),
]
BENCH = '''
import json
from pathlib import Path

from hil.bench.offering import Offering

def attached():
    return ()

class Toys(Offering):
    """What lies on the table."""

    def boards(self):
        return json.loads((Path(__file__).parent / "table.json").read_text())
'''
SERIAL = f"toy-{os.getpid()}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    """One node with two processors that keeps its cache where its environment says."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PIPELINE_CACHE": str(folder / "cache")}
    with small_cluster(folder, environment) as started:
        started.start_node("head", 2)
        started.wait_until_up("head")
        yield started


@pytest.fixture
def toy(tmp_path: Path, cluster: SmallCluster) -> ToyProject:
    made = make_toy(tmp_path / "toy")
    (made.root / "toy_bench.py").write_text(BENCH)
    (made.root / "table.json").write_text(json.dumps({SERIAL: "stove"}))
    made.edit("pipeline.yaml", "bench: toy_bench:attached", "bench: toy_bench:attached\ntools: {offer: toy_bench:Toys}")
    made.environment = {"PIPELINE_CACHE": str(tmp_path / "cache"), "RAY_ADDRESS": cluster.address, **cluster.access}
    return made


def shares_the_cache(toy: ToyProject, cluster: SmallCluster) -> ToyProject:
    toy.environment["PIPELINE_CACHE"] = cluster.environment["PIPELINE_CACHE"]
    return toy


def log_of(toy: ToyProject, step: str) -> str:
    return (Path(toy.environment["PIPELINE_CACHE"]) / "logs" / "bread" / f"{step}.log").read_text()


def test_a_node_without_the_cache_works_through_the_store(toy: ToyProject) -> None:
    refused = toy.run("run", "bread", "--virtual", "--executor", "ray", check=1)
    assert "grow: a node sees neither" in refused.stderr and "name a store: in pipeline.yaml" in refused.stderr
    assert toy.executed() == []
    toy.environment["PIPELINE_STORE"] = f"file://{toy.root}/store"
    toy.run("run", "bread", "--virtual", "--executor", "ray")
    assert sorted(toy.executed()) == ["bake-kiln", "bake-stove", "grow", "mill", "sell"]
    there = toy.artifacts()
    assert "[ran on" in log_of(toy, "bake[stove]")
    toy.environment |= {"PIPELINE_STORE": "", "PIPELINE_CACHE": str(toy.root / "another")}
    toy.run("run", "bread", "--virtual")
    assert toy.artifacts() == there
    assert len(toy.executed()) == 5


def test_a_step_whose_process_of_ray_is_killed_goes_on_from_its_checkpoint(
    toy: ToyProject, cluster: SmallCluster
) -> None:
    shares_the_cache(toy, cluster)
    command = ("run", "bread", "--virtual", "--executor", "ray", "--set", "mill.rounds=12", "--set", "mill.pause_s=0.4")
    with toy.started(*command, until="mill: round") as driver:
        wait_for("it has a name", lambda: tasks_named("mill") != [])
        for process in tasks_named("mill"):
            os.kill(process, signal.SIGKILL)
        assert driver.stderr is not None
        said = driver.stderr.read()
    assert driver.returncode == 0
    assert "mill: its node was lost" in said and "tried again from its checkpoint" in said
    assert int((toy.root / "resumed.log").read_text().split()[0]) >= 1
    assert toy.executed().count("mill") == 2


def test_ctrl_c_ends_what_runs_there_and_the_next_run_goes_on(toy: ToyProject, cluster: SmallCluster) -> None:
    shares_the_cache(toy, cluster)
    slow = ("run", "bread", "--virtual", "--executor", "ray", "--set", "mill.rounds=9")
    with toy.started(*slow, "--set", "mill.pause_s=0.5", until="mill: round") as driver:
        driver.send_signal(signal.SIGINT)
    assert driver.returncode == 130
    wait_for("its task is gone", lambda: tasks_named("mill") == [], 20)
    rounds = len(list((Path(toy.environment["PIPELINE_CACHE"]) / "checkpoints").glob("*/*")))
    time.sleep(1)
    assert len(list((Path(toy.environment["PIPELINE_CACHE"]) / "checkpoints").glob("*/*"))) == rounds >= 1
    failed = toy.run(*slow, "--set", "mill.fail=true", check=1)
    assert failed.stderr.splitlines()[-1] == "mill: the millstone is cracked; needed a whole one"


def test_a_board_is_offered_locked_and_withdrawn_and_its_steps_run_on_its_node(
    toy: ToyProject, cluster: SmallCluster
) -> None:
    shares_the_cache(toy, cluster)
    for command in (("run", "bread", "--executor", "ray"), ("worker",)):
        unreachable = toy.run(*command, "--address", "127.0.0.1:9", check=1)
        assert unreachable.stderr.startswith("--address 127.0.0.1:9: nobody answers there (")
    absent = toy.run("run", "bread", "--board", "stove", "--executor", "ray", check=3)
    assert "--board stove: not attached" in absent.stderr
    cluster.start_worker("worker", toy.root / "pipeline.yaml", "kiln")
    wait_for("both are offered", lambda: cluster.said("worker").count("offered to the cluster") == 2)
    holder = board_lock(SERIAL).holder()
    assert holder is not None and holder.pid == cluster.processes["worker"].pid
    toy.run("run", "bread", "--board", "stove", "--executor", "ray")
    assert f"which offers board:stove, probe:{SERIAL.upper()}]" in log_of(toy, "bake[stove]")
    assert "which offers" not in log_of(toy, "sell")
    (toy.root / "table.json").write_text("{}")
    wait_for("it is withdrawn", lambda: f"stove ({SERIAL}): is not attached any more" in cluster.said("worker"))
    wait_for("its lock is free", lambda: board_lock(SERIAL).holder() is None)
    cluster.kill("worker")
    wait_for("the twin's lock is free", lambda: board_lock("twin-kiln").holder() is None)
    absent = toy.run("run", "bread", "--board", "stove", "--executor", "ray", check=3)
    assert "--board stove: not attached" in absent.stderr


def test_a_node_with_other_tools_is_passed_over(toy: ToyProject, cluster: SmallCluster, tmp_path: Path) -> None:
    shares_the_cache(toy, cluster)
    toy.edit("toy_mill.py", '@stage("mill")', '@stage("mill", optional_programs=("toy-mill",))')
    (tmp_path / "toy-mill").write_text("#!/bin/sh\necho 7\n")
    (tmp_path / "toy-mill").chmod(0o755)
    toy.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    command = ("run", "bread", "--virtual", "--executor", "ray", "--set", "mill.rounds=3")
    refused = toy.run(*command, check=1)
    assert "mill: a node is passed over, it would make something else: " in refused.stderr
    assert refused.stderr.splitlines()[-1].endswith("version.toy-mill: 7 -> not installed")
    cluster.start_node("second", 1, {"PATH": toy.environment["PATH"]})
    cluster.wait_until_up("second")
    assert "passed over" in toy.run(*command, "--json").stderr or "[ran on" in log_of(toy, "mill")
    assert toy.executed().count("mill") == 1


def tasks_named(step: str) -> list[int]:
    """Processes of Ray's that run it now: they are called by their task."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(f"ray::{step}".encode()):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
