"""The record of a run, the list of runs, and the commands that keep and drop them."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.records.store import RunStore, StoredRun, read_run
from pipeline.records.tracking_file import append_rows
from tests.pipeline.conftest import ToyProject


def runs_of(toy: ToyProject) -> list[StoredRun]:
    return RunStore(toy.root / "runs").runs()


def test_the_record_says_what_was_run_with_what_where_and_how_long(toy: ToyProject) -> None:
    toy.run("run", "bread", "--board", "kiln", "--virtual", "--set", "mill.rounds=2")
    toy.run("run", "bread", "--board", "kiln", "--virtual", "--set", "mill.rounds=2")
    first, second = (run.facts for run in runs_of(toy))
    assert first["command"] == "pipeline run bread --board kiln --virtual --set mill.rounds=2"
    assert first["overrides"] == ["mill.rounds=2"] and first["config"]["mill"]["rounds"] == 2
    assert first["config"]["grow"] == {"grains": 6, "bag": 1000}, "defaults are written out"
    assert (first["source"], first["boards"]) == ("virtual", [{"board": "kiln", "source": "virtual"}])
    assert {step["status"] for step in first["steps"]} == {"ran"}
    assert {step["status"] for step in second["steps"]} == {"cached"}
    assert [step["step"] for step in first["steps"]] == ["grow", "mill", "bake", "sell"]
    assert sum(step["seconds"] for step in first["steps"]) < first["seconds"] < 60
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["start"])
    assert first["versions"]["python"] and first["versions"]["pydantic"] and first["versions"]["tinyml-pipeline"]
    assert first["machine"]["cores"] == os.cpu_count() and first["machine"]["processor"]
    assert first["rows"] == [{"board": "kiln", "price": "3"}]
    assert first["config_digest"] == second["config_digest"]
    assert (first["git"], first["seed"]) == (None, {})


def test_commit_and_dirtiness_are_recorded_and_our_own_files_make_nothing_dirty(toy: ToyProject) -> None:
    git = ["git", "-C", str(toy.root), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "toy"]):
        subprocess.run([*git, *words], check=True)
    toy.edit("toy_grow.py", "Path(__file__).parent", "Path('/tmp')")
    toy.edit("toy_mill.py", "Path(__file__).parent", "Path('/tmp')")
    subprocess.run([*git, "commit", "-qam", "no logs"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    toy.run("run", "bread", "--only", "grow", check=None)
    toy.run("run", "bread", "--only", "grow", check=None)
    (toy.root / "mine.py").write_text("")
    toy.run("run", "bread", "--only", "grow", check=None)
    assert [run.facts["git"] for run in runs_of(toy)] == [
        {"commit": head, "dirty": dirty} for dirty in (False, False, True)
    ]


def test_a_failed_run_is_kept_and_marked_and_is_not_the_latest(toy: ToyProject) -> None:
    toy.run("run", "bread")
    good = toy.latest
    toy.run("run", "bread", "--set", "mill.fail=true", check=1)
    failed = runs_of(toy)[-1]
    assert (failed.state, failed.facts["error"]) == ("failed", "mill: the millstone is cracked; needed a whole one")
    assert [step["step"] for step in failed.facts["steps"]] == ["grow"] and toy.latest == good
    said = toy.run("runs").stdout
    assert re.search(rf"{failed.id} .* failed .*mill.fail=true", said)
    assert f"{failed.id}: mill: the millstone is cracked; needed a whole one" in said


def test_part_of_a_run_is_not_the_latest(toy: ToyProject) -> None:
    toy.run("run", "bread", "--only", "grow")
    assert not (toy.root / "runs" / "bread" / "latest").exists()
    assert " part " in toy.run("runs", "bread").stdout
    assert "has 0 whole runs, needed 1" in toy.run("runs", "--drop", "latest", check=2).stderr


def test_a_run_is_running_while_it_runs_and_killed_after_kill_minus_nine(toy: ToyProject) -> None:
    with toy.started("run", "bread", "--set", "mill.pause_s=5", until="mill: running") as process:
        (run,) = runs_of(toy)
        assert run.state == "running"
        assert "is still running" in toy.run("runs", "--drop", run.id, check=2).stderr
        os.kill(process.pid, signal.SIGKILL)
    record = json.loads((run.folder / "run.json").read_text())
    assert record["state"] == "running", "nobody could say otherwise"
    (run.folder / "half").mkdir()
    assert json.loads(toy.run("runs", "--json").stdout)[0]["state"] == "killed"
    assert json.loads((run.folder / "run.json").read_text())["state"] == "killed"
    assert not (run.folder / "half").exists() and (run.folder / "grow").is_dir()


def test_latest_leads_to_a_whole_run_that_was_killed_before_it_said_so(toy: ToyProject) -> None:
    toy.run("run", "bread", "--virtual")
    toy.run("run", "bread", "--virtual")
    first, second = runs_of(toy)
    link = toy.root / "runs" / "bread" / "latest"
    for left_behind in (first.id, None):
        link.unlink()
        if left_behind:
            link.symlink_to(left_behind)
        assert [run.id for run in runs_of(toy)] == [first.id, second.id]
        assert os.readlink(link) == second.id
    link.unlink()
    link.symlink_to(first.id)
    held = os.open(second.folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    runs_of(toy)
    assert os.readlink(link) == first.id, "its process is there and does it itself"
    os.close(held)


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(toy: ToyProject) -> None:
    options = ["run", "bread", "--virtual", "--set", "mill.pause_s=1.5"]
    command = toy.command(*options)
    with subprocess.Popen(command, cwd=toy.root, env=toy.env(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("mill: round 1" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.splitlines()[-1] == (
        "interrupted: 1 of 5 steps are kept, and the last epoch of a training; "
        "go on with: pipeline run bread --virtual --set mill.pause_s=1.5"
    )
    (run,) = runs_of(toy)
    assert run.state == "killed"


def test_ids_sort_by_time_and_two_of_one_moment_differ(tmp_path: Path) -> None:
    import datetime

    from pipeline.records.record import _new_folder

    moment = datetime.datetime(2026, 11, 17, 20, 15, 30, 500000, datetime.UTC)
    names = [_new_folder(tmp_path / "x", moment + datetime.timedelta(microseconds=at)).name for at in (0, 0, 40, 9**6)]
    assert names == sorted(set(names)) and names[0] == "20261117-201530-8000" and len(names) == 4


def test_dropped_runs_are_out_of_sight_until_gc_removes_them_or_keep_takes_them_back(toy: ToyProject) -> None:
    for heat in (1, 2, 3):
        toy.run("run", "bread", "--set", f"bake.heat={heat}")
    first, second, third = runs_of(toy)
    toy.run("runs", "--drop", third.id, "--drop", second.id[-6:])
    assert [run.id for run in runs_of(toy)] == [first.id] and toy.latest.name == first.id
    assert third.id in toy.run("runs", "--dropped").stdout
    toy.run("runs", "--keep", third.id)
    assert [run.id for run in runs_of(toy)] == [first.id, third.id] and toy.latest.name == third.id
    assert "no such run" in toy.run("runs", "--drop", second.id, check=2).stderr
    toy.run("gc", "--max-size", "1B")
    assert "no such dropped run" in toy.run("runs", "--keep", second.id, check=2).stderr
    toy.executed()
    for heat, reruns in ((1, []), (3, []), (2, ["bake-kiln", "bake-stove", "sell"])):
        toy.run("run", "bread", "--set", f"bake.heat={heat}")
        assert sorted(toy.executed()) == reruns, "gc left what the kept runs need, and nothing else"


def test_several_runs_are_dropped_by_a_word(toy: ToyProject) -> None:
    toy.run("run", "bread")
    toy.run("run", "bread", "--set", "mill.fail=true", check=1)
    toy.run("runs", "--drop", "older:1h")
    assert len(runs_of(toy)) == 2
    toy.run("runs", "--drop", "unfinished")
    assert [run.state for run in runs_of(toy)] == ["done"]
    toy.run("runs", "--drop", "older:1ms")
    assert runs_of(toy) == []
    assert toy.run("runs").stdout == "no runs yet; make one with: pipeline run EXPERIMENT\n"


def test_a_run_is_found_by_id_end_of_id_latest_and_folder(toy: ToyProject) -> None:
    for options in ([], ["--set", "bake.heat=2"], ["--quick"]):
        toy.run("run", "bread", *options)
    store = RunStore(toy.root / "runs")
    first, second, quick = store.runs()
    assert store.find("latest").id == quick.id
    assert store.find("bread/latest").id == second.id and store.find("bread/latest~1").id == first.id
    assert store.find(str(second.folder.parent / "latest")).id == second.id
    assert store.find(first.id).id == store.find(first.id[-9:]).id == store.find(str(first.folder)).id == first.id
    for text, sentence in (
        ("latest~1", "latest~1: .*runs has 1 whole runs, needed 2"),
        ("cake/latest", "cake/latest: .*cake has 0 whole runs, needed 1"),
        ("nothing", "nothing: no such run in "),
        ("", ": no such run in "),
    ):
        with pytest.raises(ConfigError, match=sentence):
            store.find(text)


def test_a_record_that_cannot_be_read_is_no_run(toy: ToyProject) -> None:
    toy.run("run", "bread")
    record = toy.latest / "run.json"
    text = record.read_text()
    for damaged in (text[:100], "[]", "{}", "", "\0"):
        record.unlink()
        record.write_text(damaged)
        assert read_run(record.parent) is None
        assert toy.run("runs").returncode == 0
    toy.run("run", "bread")
    assert len(runs_of(toy)) == 1


def test_links_of_the_former_layout_are_removed(toy: ToyProject) -> None:
    old = toy.root / "runs" / "bread" / "mill"
    old.parent.mkdir(parents=True)
    old.symlink_to(toy.root)
    toy.run("run", "bread")
    assert not old.is_symlink() and toy.root.is_dir()


def test_clean_asks_first(toy: ToyProject) -> None:
    toy.run("run", "bread")
    refused = toy.run("clean", check=2)
    assert "1 runs in " in refused.stderr and "add --yes" in refused.stderr
    assert toy.latest.is_dir()


def test_rows_are_appended_to_one_file_and_new_columns_come_last(toy: ToyProject) -> None:
    for options in ([], ["--set", "sell.price=4"]):
        toy.run("run", "bread", *options, "--append", "log/all.csv")
    toy.edit("toy_sell.py", "board,price", "board,price,taste")
    toy.edit("toy_sell.py", "{config.price}", "{config.price},good")
    toy.run("run", "bread", "--append", "log/all.csv")
    lines = (toy.root / "log" / "all.csv").read_text().splitlines()
    assert lines[0] == "board,price,taste"
    assert lines[1:] == ["stove,3,", "kiln,3,", "stove,4,", "kiln,4,", "stove,3,good", "kiln,3,good"]


def test_a_file_that_is_no_table_is_not_appended_to(tmp_path: Path) -> None:
    for content in (b"a,b\n1,2,3\n", b"\xff\xfe\x00", b'a\n"1\n'):
        (tmp_path / "x.csv").write_bytes(content)
        with pytest.raises(ConfigError, match="--append .*x.csv: "):
            append_rows(tmp_path / "x.csv", [{"a": "1"}])
        assert (tmp_path / "x.csv").read_bytes() == content
    with pytest.raises(ConfigError, match="cannot be written"):
        append_rows(tmp_path / "x.csv" / "y.csv", [{"a": "1"}])


def test_many_appending_at_once_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            append_rows(path, [{"n": str(number)}])
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    with path.open() as stream:
        assert sorted(row["n"] for row in csv.DictReader(stream)) == list("01234567")


def test_a_name_that_is_no_folder_is_refused(toy: ToyProject) -> None:
    toy.edit("pipeline.yaml", "  bread:", "  ../bread:")
    assert "is no name for a folder of runs" in toy.run("run", "../bread", check=2).stderr
    assert not (toy.root / "bread").exists()
