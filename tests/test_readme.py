"""The lines of the README work as written: each command, and the Python.

A command that trains is given small data and few epochs beside what the README says; nothing is taken away from it.
Those on the built-in experiment are executed by test_end_to_end, which has a finished run of it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from stages.graph.tflite.writer import write_tflite
from tests.data.examples.test_class_folders import pictures
from tests.stages.graph.int8_graphs import residual_network

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
FEW = "--set prune.epochs=4 --set prune.batch=16 --set qat.epochs=1 --set measure.runs=2"
# what a line is given beside its own words
STAND_INS = {
    "pipeline run mine": FEW,
    "pipeline run mine --quick": FEW,
}
EXIT_CODES = {"pipeline run kws_dscnn_s --board nucleo_f767zi": 3}


def commands() -> list[str]:
    """Every indented line that starts a program, without its comment; `a | b` names several."""
    found = []
    for line in re.findall(r"^    ((?:make|pipeline) .*)$", README, flags=re.M):
        words = re.sub(r"\s+# .*", "", line).strip()
        first, *others = words.split(" | ")
        found += [first, *(f"{first.split()[0]} {other}" for other in others)]
    return found


def of_a_finished_run(command: str) -> bool:
    """On the built-in experiment with --quick, or about its runs."""
    return "kws_dscnn_s" in command and command not in EXIT_CODES


def pipeline(folder: Path, command: str, more: str = "") -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(f"{command} {more}")
    assert program == "pipeline"
    argv = [sys.executable, "-P", "-m", "pipeline.cli", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def run_python_of_the_readme(folder: Path) -> None:
    """With the settings of the run before, so that it comes from the cache."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    few = dict(setting.split("=") for setting in FEW.split() if setting != "--set")
    shorter = code.replace('{"prune.epochs": 10}', repr({key: int(value) for key, value in few.items()}))
    assert shorter != code
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", shorter], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and " columns]" in done.stdout, done.stderr
    assert "running" not in done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of a user are typed, one after the other."""
    place = tmp_path_factory.mktemp("folder")
    (place / "MODEL.tflite").write_bytes(write_tflite(residual_network(0), "test"))
    (place / "MODEL.keras").write_bytes(b"")
    np.save(place / "X.npy", np.zeros((2, 4), np.float32))
    pictures(place / "DIR")
    return place


def test_the_readme_has_commands() -> None:
    assert len(commands()) >= 20 and len(set(commands())) == len(commands())
    assert sum(map(of_a_finished_run, commands())) >= 6
    assert all(line in commands() for line in (*STAND_INS, *EXIT_CODES))


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith("make ")])
def test_make_knows_its_target(command: str) -> None:
    assert subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.slow
def test_each_command_works_as_written(folder: Path) -> None:
    """In the order of the README: one makes the files of the next."""
    typed = [each for each in commands() if each.startswith("pipeline ") and not of_a_finished_run(each)]
    assert len(typed) >= 12
    for command in typed:
        if "-o DIR" in command or "--out DIR" in command:
            command = command.replace("DIR", f"made_by_{command.split()[1]}")
        if command.startswith("pipeline doctor") or command.startswith("pipeline clean"):
            continue  # below
        done = pipeline(folder, command, STAND_INS.get(command, ""))
        if command.startswith("pipeline import") and find_spec("tensorflow") is None:
            assert done.returncode != 0 and "[tf]" in done.stderr.splitlines()[-1], done.stderr
            continue
        assert done.returncode == EXIT_CODES.get(command, 0), f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert (folder / "memory.svg").exists() and (folder / "made_by_compile" / "model.h").exists()
    assert (folder / "runs" / "mine" / "latest" / "report" / "report.html").exists()
    run_python_of_the_readme(folder)
    cleaned = pipeline(folder, "pipeline clean", "--yes")
    assert cleaned.returncode == 0 and not (folder / "runs").exists(), cleaned.stderr
    assert pipeline(folder, "pipeline doctor").returncode in (0, 1), "1: it found something to mend on this machine"
