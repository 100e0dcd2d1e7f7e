"""The command line: results on stdout, progress on stderr, the exit codes of the contract."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest


def test_the_table_goes_to_stdout_and_progress_to_stderr(toy):
    done = toy.run("run", "bread")
    assert done.stdout.splitlines()[0] == "bread"
    assert done.stdout.splitlines()[1].startswith("stove 6 ")
    assert done.stdout.splitlines()[1].endswith("200 stove virtual")
    assert "no board attached: the virtual twins of stove, kiln are used" in done.stderr
    assert "mill: round 4/4, dust " in done.stderr
    assert "5 steps, 0 cached, " in done.stderr


def test_json_lists_steps_and_rows(toy):
    result = json.loads(toy.run("run", "bread", "--quick", "--json", "--board", "kiln", "--virtual").stdout)
    assert [step["step"] for step in result["steps"]] == ["grow", "mill", "bake", "sell"]
    assert result["steps"][2]["board"] == "kiln"
    assert result["rows"] == [{"board": "kiln", "price": "3"}]
    assert (result["experiment"], result["quick"]) == ("bread", True)


def test_plan_tells_cached_from_to_run(toy):
    assert [line.split()[1:] for line in toy.run("plan", "bread").stdout.splitlines()][:2] == [
        ["will", "run", "first", "run"],
        ["may", "run", "after", "grow"],
    ]
    toy.run("run", "bread")
    assert {item["status"] for item in json.loads(toy.run("plan", "bread", "--json").stdout)} == {"cached"}
    changed = json.loads(toy.run("plan", "bread", "--json", "--set", "mill.rounds=9").stdout)
    assert [item["status"] for item in changed] == ["cached", "run", "open", "open", "open"]
    assert changed[1]["reason"] == "config.rounds: 4 -> 9"
    assert toy.executed().count("mill") == 1


def test_only_runs_one_step_and_wants_its_inputs_cached(toy):
    refused = toy.run("run", "bread", "--only", "mill", check=1)
    assert (
        "grow: not in the cache, needed by --only mill; run it first: pipeline run bread --only grow" in refused.stderr
    )
    toy.run("run", "bread", "--only", "grow")
    toy.run("run", "bread", "--only", "mill")
    assert toy.executed() == ["grow", "mill"]


def test_from_takes_what_is_before_from_the_cache(toy):
    assert "needed by --from mill" in toy.run("run", "bread", "--from", "mill", check=1).stderr
    toy.run("run", "bread", "--only", "grow")
    toy.executed()
    toy.run("run", "bread", "--from", "mill")
    assert sorted(toy.executed()) == ["bake-kiln", "bake-stove", "mill", "sell"]


def test_force_runs_a_cached_step_again(toy):
    toy.run("run", "bread")
    toy.executed()
    toy.run("run", "bread", "--force", "mill")
    assert toy.executed() == ["mill"]


def test_a_forced_run_that_gives_other_bytes_is_reported(toy):
    toy.edit("toy_grow.py", "str(config.bag)", "str(__import__('time').monotonic_ns())")
    toy.run("run", "bread")
    done = toy.run("run", "bread", "--force", "grow")
    assert "grow: forced run gave other bytes than the cached one: notes.txt" in done.stderr


def test_attached_boards_are_used_and_never_served_from_the_cache(toy):
    (toy.root / "toy_bench.py").write_text("def attached():\n    return ('kiln',)\n")
    for _ in range(2):
        result = json.loads(toy.run("run", "bread", "--json").stdout)
        bakes = [(step["board"], step["source"], step["status"]) for step in result["steps"] if step["step"] == "bake"]
        assert bakes == [("kiln", "hardware", "ran")]
    assert toy.run("run", "bread", "--board", "kiln").stdout.endswith("kiln hardware\n")


def test_a_board_that_is_not_attached_is_exit_code_3(toy):
    refused = toy.run("run", "bread", "--board", "stove", check=3)
    assert refused.stderr == "--board stove: not attached; attach it, or add --virtual to use its twin\n"


def test_an_unknown_board_stops_before_any_step(toy):
    (toy.root / "stove").mkdir()
    toy.edit("toy_bake.py", '@stage("bake",', '@stage("bake", sources=("{board}",),')
    refused = toy.run("run", "bread", check=2)
    assert "bake[kiln]: kiln: no such file or folder" in refused.stderr
    assert toy.executed() == []


def test_a_failing_step_is_exit_code_1_and_one_sentence(toy):
    failed = toy.run("run", "bread", "--set", "mill.fail=true", check=1)
    assert failed.stderr.splitlines()[-1] == "mill: the millstone is cracked; needed a whole one"
    assert "Traceback" not in failed.stderr


def test_a_bug_in_a_step_shows_its_traceback(toy):
    toy.edit("toy_mill.py", "if config.fail:", "if config.fail:\n        1 / 0\n    if config.fail:")
    failed = toy.run("run", "bread", "--set", "mill.fail=true", check=1)
    assert "Traceback" in failed.stderr
    assert failed.stderr.splitlines()[-1] == "mill: ZeroDivisionError: division by zero"


def test_a_bad_key_is_exit_code_2_before_anything_runs(toy):
    refused = toy.run("run", "bread", "--set", "mill.round=3", check=2)
    assert refused.stderr.strip() == "--set mill.round=3: mill.round: unknown key; did you mean 'rounds'?"
    assert toy.executed() == []


def test_an_unknown_step_is_exit_code_2(toy):
    assert "mil: no such step; known are grow, mill" in toy.run("run", "bread", "--force", "mil", check=2).stderr
    assert toy.run("why", "bread", "mil", check=2).stdout == ""


def test_wrong_usage_is_exit_code_2(toy):
    assert toy.run("run", "bread", "--no-such-flag", check=2).stdout == ""


def test_a_missing_program_stops_before_any_step(toy):
    toy.edit("toy_sell.py", '@stage("sell")', '@stage("sell", programs=("no-such-mill",))')
    refused = toy.run("run", "bread", check=1)
    assert refused.stderr.splitlines()[-1] == (
        "no-such-mill: not found on PATH, needed by step sell; install it with: apt-get install no-such-mill"
    )
    assert toy.executed() == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(toy):
    failed = toy.run("run", "bread", "--set", "mill.fill_disk=true", check=1)
    assert "disk full while writing, nothing half-written is kept; free some space" in failed.stderr.splitlines()[-1]
    assert not (toy.root / ".pipeline" / "entries" / "mill").exists()
    toy.run("run", "bread")
    assert toy.executed().count("mill") == 2


def test_an_optional_artifact_that_nobody_makes_is_none(toy):
    toy.edit("toy_sell.py", "def run(bread: PerBoard, *,", "def run(bread: PerBoard, butter: Path | None, *,")
    toy.edit("toy_sell.py", "lines = [", "lines = [f'butter {butter}', *[")
    toy.edit("toy_sell.py", "in bread.items()]", "in bread.items()]]")
    assert toy.run("run", "bread").stdout.splitlines()[1] == "butter None"
    toy.edit("toy_mill.py", "    flour: Path", "    flour: Path\n    butter: Path")
    toy.edit(
        "toy_mill.py", 'Milled(flour=out_dir / "flour.txt")', 'Milled(flour=out_dir / "flour.txt", butter=out_dir)'
    )
    toy.edit("toy_mill.py", "butter=out_dir)", "butter=out_dir / 'flour.txt')")
    assert toy.run("run", "bread").stdout.splitlines()[1].endswith("flour.txt")


def test_a_tool_without_its_function_is_named(toy):
    (toy.root / "x.tflite").write_text("")
    refused = toy.run("inspect", "x.tflite", check=2)
    assert refused.stderr == "pipeline.yaml: tools.inspect: missing, needed 'module:function' for this command\n"
    toy.edit("pipeline.yaml", "bench: toy", "tools: {inspect: 'toy_bench:nothing'}\nbench: toy")
    assert "tools.inspect: cannot import toy_bench:nothing" in toy.run("inspect", "x.tflite", check=2).stderr


def test_list_and_doctor_report(toy):
    assert toy.run("list").stdout.split() == ["bread", "a", "loaf", "stove,", "kiln"]
    sick = toy.run("doctor", check=1).stdout
    assert "FIX  program no-such-mill  not on PATH" in sick
    assert "apt-get install no-such-mill" in sick
    toy.edit("pipeline.yaml", "  no-such-mill: apt-get install no-such-mill", "  sh: apt-get install dash")
    found = {item["check"]: item for item in json.loads(toy.run("doctor", "--json", check=None).stdout)}
    assert found["program sh"]["fix"] == ""
    assert found["disk space"]["found"].endswith(" GB free")


def test_runs_folder_leads_to_the_newest_artifacts(toy):
    toy.run("run", "bread")
    assert (toy.latest / "bake-kiln" / "bread.txt").read_text().endswith("200 kiln virtual")
    toy.run("run", "bread", "--set", "bake.heat=250")
    assert (toy.latest / "bake-kiln" / "bread.txt").read_text().endswith("250 kiln virtual")


def test_independent_steps_run_at_the_same_time(toy):
    toy.edit("toy_bake.py", "(out_dir /", "time.sleep(1.0)\n    (out_dir /")
    toy.run("run", "bread", "--only", "mill", check=1)
    toy.run("run", "bread", "--only", "grow")
    toy.run("run", "bread", "--only", "mill")
    seconds = {}
    for jobs in ("1", "2"):
        begin = time.monotonic()
        toy.run("run", "bread", "-j", jobs, "--force", "bake")
        seconds[jobs] = time.monotonic() - begin
    assert seconds["1"] - seconds["2"] > 0.5


@pytest.mark.parametrize("package", ["torch", "numpy", "pandas", "tensorflow", "ray", "serial", "tflite_micro"])
def test_start_up_imports_nothing_heavy(package):
    code = f"import pipeline.cli.__main__, sys; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
