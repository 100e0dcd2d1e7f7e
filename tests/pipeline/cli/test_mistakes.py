"""What users get wrong, each with its sentence and its exit code; and what works in a folder that holds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import residual_network

ROOT = Path(__file__).resolve().parents[3]
USERS_FILE = """
experiments:
  mine: {extends: kws_dscnn_s, description: my own, qat: {epochs: 1}, quick: {qat: {epochs: 3}}}
"""
MEASURE = "measure good.tflite --virtual --board"
# what is typed | files that lie there | exit code | the sentence
MISTAKES = [
    ("inspect missing.tflite", {}, 2, "missing.tflite: no such file; check the path"),
    ("optimize missing.tflite -o o.tflite", {}, 2, "missing.tflite: no such file; check the path"),
    ("compile missing.tflite -o out", {}, 2, "missing.tflite: no such file; check the path"),
    ("import missing.keras --data x.npy -o o.tflite", {"x.npy": ""}, 2, "missing.keras: no such file; check the path"),
    ("import net.keras --data x.npy -o o.tflite", {"net.keras": ""}, 2, "x.npy: no such file; check the path"),
    (
        "measure missing.tflite --board nucleo_f767zi --virtual",
        {},
        2,
        "missing.tflite: cannot be read (No such file or",
    ),
    (f"{MEASURE} nucleo_f767zi --inputs x.npy", {}, 2, "x.npy: cannot be read (No such file or directory)"),
    ("inspect text.tflite", {"text.tflite": "hello"}, 1, "text.tflite: not a .tflite file (5 B, no mark 'TFL3')"),
    (
        "measure text.tflite --board nucleo_f767zi --virtual",
        {"text.tflite": "hello"},
        1,
        "bring: text.tflite: not a .tflite file (5 B, no mark 'TFL3')",
    ),
    (f"{MEASURE} nucleo_f767", {}, 2, "--board: nucleo_f767: unknown board, known are disco_f746ng, nucleo_f767zi, "),
    ("run kws_dscnn_s --board my_board", {}, 2, "--board: my_board: unknown board, known are disco_f746ng, nucleo_"),
    ("measure good.tflite --board nucleo_f767zi", {}, 3, "--board nucleo_f767zi: not attached; attach it, or add --vi"),
    (
        f"{MEASURE} nucleo_f767zi --out taken",
        {"taken": ""},
        2,
        "--out taken: is a file, needed a folder; choose another",
    ),
    (
        f"{MEASURE} nucleo_f767zi",
        {"runs": ""},
        2,
        "runs/good: cannot be made or written (Not a directory), needed for the files of",
    ),
    ("optimize good.tflite -o taken/o.tflite", {"taken": ""}, 1, "taken/o.tflite: cannot be written (Not a directory)"),
    ("compile good.tflite -o taken", {"taken": ""}, 1, "taken: is there already, needed a new or an empty folder"),
    ("compile good.tflite -o out --weights big", {}, 2, "--weights: found 'big', needed one of "),
    ("run kws_dscn_s", {}, 2, "pipeline.yaml: experiments.kws_dscn_s: unknown experiment; did you mean 'kws_dscnn_s'?"),
    ("run kws_dscnn_s --set prune.epoch=3", {}, 2, "prune.epoch: unknown key; did you mean 'epochs'?"),
    ("run kws_dscnn_s --set prune.epochs=few", {}, 2, "prune.epochs: found 'few', input should be a valid integer"),
    ("--file other.yaml list", {}, 2, "other.yaml: cannot be read (No such file or directory)"),
    (
        "list",
        {"pipeline.yaml": "experimets: {}"},
        2,
        "pipeline.yaml:1: experimets: unknown key; did you mean 'experime",
    ),
    ("list", {"pipeline.yaml": "a: [1"}, 2, "not valid YAML"),
    (
        "plan mine",
        {"pipeline.yaml": "experiments: {mine: {extends: kws_dscn_s}}"},
        2,
        "pipeline.yaml:1: experiments.mine.extends: kws_dscn_s: unknown experiment; did you mean 'kws_dscnn_s'?",
    ),
    (
        "plan a",
        {"pipeline.yaml": "experiments: {a: {extends: b}, b: {extends: a}}"},
        2,
        "experiments.b.extends: a extends b already, needed one that stands alone",
    ),
    ("list", {"data.py": ""}, 2, "data.py: is imported as 'data', needed "),
    ("list", {"stages/__init__.py": ""}, 2, "stages: is imported as 'stages', needed "),
]


def pipeline(folder: Path, arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    argv = [sys.executable, "-P", "-m", "pipeline.cli", *arguments.split()]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def network() -> bytes:
    return write_tflite(residual_network(0), "test")


@pytest.mark.parametrize(("typed", "files", "code", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_gets_its_sentence(tmp_path, network, typed, files, code, sentence):
    (tmp_path / "good.tflite").write_bytes(network)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    done = pipeline(tmp_path, typed)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("cache", ["taken/cache", "/proc/cache"])
def test_a_cache_that_cannot_be_written_is_one_sentence_and_the_doctor_sees_it(tmp_path, network, cache):
    (tmp_path / "good.tflite").write_bytes(network)
    (tmp_path / "taken").write_text("")
    done = pipeline(tmp_path, f"{MEASURE} nucleo_f767zi", PIPELINE_CACHE=cache)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the cache cannot be written (" in done.stderr.splitlines()[-1]
    assert "; set PIPELINE_CACHE to a folder of your own" in done.stderr.splitlines()[-1]
    findings = json.loads(pipeline(tmp_path, "doctor --json", PIPELINE_CACHE=cache).stdout)
    (found,) = (item for item in findings if item["check"] == "cache folder")
    assert "is not writable" in found["found"] and found["fix"].endswith("set PIPELINE_CACHE to another folder")


def test_in_an_empty_folder_the_built_in_experiments_are_there(tmp_path, network):
    (tmp_path / "good.tflite").write_bytes(network)
    (tmp_path / "data").mkdir()  # a user's own, without Python in it
    names = [item["experiment"] for item in json.loads(pipeline(tmp_path, "list --json").stdout)]
    assert names[0] == "kws_dscnn_s" and len(names) >= 16
    for command in ("inspect good.tflite", "optimize good.tflite -o planned.tflite", "compile good.tflite -o made"):
        done = pipeline(tmp_path, command)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "README.md").exists() and (tmp_path / "planned.tflite").exists()
    boards = pipeline(tmp_path, "boards").stdout
    assert all(name in boards for name in ("disco_f746ng", "nucleo_f767zi", "nucleo_h743zi2"))


def test_a_users_file_holds_only_what_is_theirs(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(USERS_FILE)
    listed = {item["experiment"]: item for item in json.loads(pipeline(tmp_path, "list --json").stdout)}
    assert listed["mine"]["description"] == "my own" and "kws_dscnn_m" in listed
    assert listed["mine"]["boards"] == ["nucleo_f767zi", "nucleo_h743zi2"]
    steps = [item["step"] for item in json.loads(pipeline(tmp_path, "plan mine --quick --json").stdout)]
    assert [step for step in steps if step in ("prepare", "prune", "qat")] == ["prepare", "prune", "qat"]
    assert "measure[nucleo_f767zi]" in steps
