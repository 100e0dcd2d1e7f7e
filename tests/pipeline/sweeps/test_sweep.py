"""A sweep of the toy project: shared steps once, one table, failures apart, kill -9 loses no point."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.pipeline.conftest import ToyProject

GRID = ("sweep", "bread", "--set", "mill.rounds=1,2", "--seeds", "3..4", "--name", "grid", "-j", "2")


@pytest.fixture
def toy(toy: ToyProject) -> ToyProject:
    """With something that takes seeds."""
    toy.edit("toy_mill.py", "    pause_s: float = 0.0\n", "    pause_s: float = 0.0\n    seed: int = 0\n")
    toy.edit("toy_mill.py", '"dust": 1}', '"dust": 1 + config.seed}')
    toy.edit("pipeline.yaml", "defaults:\n", "seeds: [mill.seed]\ndefaults:\n")
    return toy


def rows(toy: ToyProject, name: str = "grid") -> list[dict[str, str]]:
    return list(csv.DictReader((toy.root / "sweeps" / name / "results.csv").read_text().splitlines()))


def test_shared_steps_run_once_and_every_point_seed_and_board_has_a_row(toy: ToyProject) -> None:
    done = toy.run(*GRID)
    assert sorted(toy.executed()) == sorted(["grow", *["mill"] * 4, *["bake-stove", "bake-kiln", "sell"] * 4])
    found = [(row["point"], row["mill.rounds"], row["seed"], row["board"], row["status"]) for row in rows(toy)]
    assert found == [
        (str(number), rounds, seed, board, "done")
        for number, rounds in enumerate("12")
        for seed in "34"
        for board in ("stove", "kiln")
    ]
    assert "4 points, 0 failed" in done.stdout and "grid/results.csv" in done.stdout
    for row in rows(toy):
        run = json.loads((toy.root / "runs" / row["run"] / "run.json").read_text())
        assert run["overrides"] == [f"mill.rounds={row['mill.rounds']}", f"mill.seed={row['seed']}"]
        assert run["state"] == "done"

    again = toy.run(*GRID)
    assert (toy.executed(), "4 points, 4 of them up to date" in again.stderr) == ([], True)
    assert len(list((toy.root / "runs" / "bread").glob("2*"))) == 4, "no run is made again"


def test_a_point_is_the_run_that_its_overrides_name(toy: ToyProject) -> None:
    toy.run(*GRID)
    toy.executed()
    toy.run("run", "bread", "--set", "mill.rounds=2", "--set", "mill.seed=4")
    assert toy.executed() == []


def test_what_changed_since_runs_again_and_nothing_else(toy: ToyProject) -> None:
    toy.run(*GRID)
    toy.executed()
    toy.edit("toy_sell.py", "price: int = 3", "price: int = 4")
    plan = json.loads(toy.run(*GRID, "--plan", "--json").stdout)
    assert [(point["status"], point["to_run"]) for point in plan] == [("run", 1)] * 4
    toy.run(*GRID)
    assert toy.executed() == ["sell"] * 4
    assert {row["price"] for row in rows(toy)} == {"4"}


def test_a_failed_point_is_recorded_and_the_rest_goes_on(toy: ToyProject) -> None:
    question = ("sweep", "bread", "--set", "mill.fail=true,false", "--set", "sell.price=1,2", "--name", "grid")
    done = toy.run(*question, check=1)
    assert toy.executed().count("mill") == 2, "the same step fails once for both of its points"
    failed = [row for row in rows(toy) if row["status"] == "failed"]
    assert [(row["mill.fail"], row["sell.price"]) for row in failed] == [("true", "1"), ("true", "2")]
    assert failed[0]["error"] == "mill: the millstone is cracked; needed a whole one"
    assert [row["price"] for row in rows(toy) if row["status"] == "done"] == ["1", "1", "2", "2"]
    assert "failed: bread mill.fail=true sell.price=1: mill: the millstone is cracked" in done.stdout
    toy.edit("toy_mill.py", "if config.fail:", "if False:")
    toy.run(*question)
    assert {row["status"] for row in rows(toy)} == {"done"}


def test_kill_minus_nine_loses_no_finished_point(toy: ToyProject) -> None:
    question = ("sweep", "bread", "--set", "mill.rounds=1..4", "--set", "mill.pause_s=0.2", "--name", "grid", "-j", "1")
    with toy.started(*question, until="1 of 4 points") as process:
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.2)
    toy.executed()
    finished = list((toy.root / "sweeps" / "grid" / "points").glob("*.json"))
    assert 0 < len(finished) < 4
    toy.run(*question)
    assert [row["mill.rounds"] for row in rows(toy)] == [rounds for rounds in "1234" for _ in range(2)]
    assert toy.executed().count("mill") <= 4 - len(finished)


def test_a_sweep_of_the_configuration_file(toy: ToyProject) -> None:
    with (toy.root / "pipeline.yaml").open("a") as file:
        file.write("sweeps:\n  heat:\n    experiments: [bread]\n    set: {bake.heat: [100, 150], sell.price: 1..9}\n")
        file.write("    sample: 3\n    quick: true\n")
    plan = json.loads(toy.run("sweep", "heat", "--plan", "--json").stdout)
    assert len(plan) == 3 and len({point["point"] for point in plan}) == 3
    toy.run("sweep", "heat")
    assert (len(rows(toy, "heat")), toy.executed().count("grow")) == (6, 1)
    assert (toy.root / "runs" / "bread-quick").is_dir()
    question = json.loads((toy.root / "sweeps" / "heat" / "sweep.json").read_text())
    assert (question["sample"], question["axes"]["bake.heat"]) == (3, {"values": ["100", "150"]})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bred"], "experiments.bred: unknown experiment; did you mean 'bread'?"),
        (["bread", "--set", "mill.round=1,2"], "mill.round: unknown key; did you mean 'rounds'?"),
        (["bread", "--set", "mill.rounds=1,x"], "--set mill.rounds=x: mill.rounds: found 'x'"),
        (["bread", "--set", "mill.rounds"], "--set mill.rounds: found no key=values"),
        (["bread", "--seeds", "x"], "--seeds: found 'x', needed whole numbers"),
        (["bread", "--name", "../x"], "is no name for the folder of a sweep"),
        (["bread", "--set", "mill.rounds=whole(1..9)"], "a span of numbers has no grid"),
    ],
)
def test_mistakes_stop_before_any_point_runs(toy: ToyProject, arguments: list[str], sentence: str) -> None:
    done = toy.run("sweep", *arguments, check=2)
    assert sentence in done.stderr
    assert toy.executed() == []


def test_a_project_without_seeds_says_what_is_missing(toy: ToyProject) -> None:
    toy.edit("pipeline.yaml", "seeds: [mill.seed]\n", "")
    assert "pipeline.yaml: seeds: missing" in toy.run("sweep", "bread", "--seeds", "1", check=2).stderr


def test_two_processes_do_not_run_the_same_sweep(toy: ToyProject) -> None:
    question = ("sweep", "bread", "--set", "mill.pause_s=0.3", "--name", "grid")
    with toy.started(*question, until="1 points, 0 of them"):
        assert "another process runs this sweep" in toy.run(*question, check=2).stderr


def test_a_torn_record_of_a_point_only_costs_a_look_at_the_cache(toy: ToyProject) -> None:
    toy.run(*GRID)
    toy.executed()
    for file in sorted((toy.root / "sweeps" / "grid" / "points").glob("*.json")):
        file.write_text(file.read_text()[:40])
    toy.run(*GRID)
    assert (toy.executed(), len(rows(toy))) == ([], 8)


def test_a_step_outlives_the_server_that_forked_it(toy: ToyProject) -> None:
    with toy.started("run", "bread", "--set", "mill.pause_s=0.3", until="mill: running") as process:
        while "mill" not in (toy.root / "executed.log").read_text():
            time.sleep(0.02)
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
    assert process.returncode == 0
    assert toy.executed().count("mill") == 1


def test_a_step_that_lost_its_server_still_ends_with_the_engine(toy: ToyProject) -> None:
    with toy.started("run", "bread", "--set", "mill.pause_s=2", until="mill: running") as process:
        while "mill" not in (toy.root / "executed.log").read_text():
            time.sleep(0.02)
        server = next(
            int(child)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        )
        worker = int(Path(f"/proc/{server}/task/{server}/children").read_text().split()[-1])
        os.kill(server, signal.SIGKILL)
        time.sleep(0.2)
        assert Path(f"/proc/{worker}").exists(), "it goes on"
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_code_that_is_edited_during_a_sweep_is_what_later_points_run(toy: ToyProject) -> None:
    question = ("sweep", "bread", "--set", "mill.rounds=1..6", "--set", "mill.pause_s=0.1", "--name", "grid", "-j", "1")
    with toy.started(*question, until="2 of 6 points") as process:
        toy.edit("toy_sell.py", "{board},{config.price}", "{board},9{config.price}")
    assert process.returncode == 0
    prices = [row["price"] for row in rows(toy)]
    assert prices[0] == "3" and prices[-1] == "93"
    toy.run(*question)
    assert {row["price"] for row in rows(toy)} == {"93"}, "and nothing was stored under the key of the other code"


def test_planning_does_not_read_what_is_cached_and_running_does(toy: ToyProject) -> None:
    toy.run(*GRID)
    toy.executed()
    flour = sorted((toy.root / ".pipeline" / "entries" / "mill").glob("*/flour.txt"))[0]
    flour.chmod(0o644)
    flour.write_text("chaff")
    for file in (toy.root / "sweeps" / "grid" / "points").glob("*.json"):
        file.unlink()
    plan = json.loads(toy.run(*GRID, "--plan", "--json").stdout)
    assert {point["status"] for point in plan} == {"cached"}
    done = toy.run(*GRID)
    assert "flour.txt does not match its sha256" in done.stderr and toy.executed() == ["mill"]
