"""`pipeline init`: what it writes is a project that loads, and nothing that was there is touched."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from pydantic import TypeAdapter
from typer.testing import CliRunner

from pipeline.cli.__main__ import app
from pipeline.errors import ConfigError
from pipeline.units import Bytes, Count
from tests.data.examples.test_class_folders import clips, pictures

ROOT = Path(__file__).resolve().parents[3]
FILES = {"pipeline.yaml", "my_nets.py", "README.md", ".gitignore", ".github/workflows/pipeline.yml"}


def pipeline(*arguments: str) -> Result:
    """In this process, where torch is imported already; the working folder is the project."""
    return CliRunner().invoke(app, arguments)


def written(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return tmp_path / "project"


def test_a_project_of_pictures_loads_and_has_budgets_below_what_its_network_takes(folder: Path) -> None:
    pictures(folder.parent / "animals")
    done = pipeline("init", "mine", "--images", "../animals")
    assert done.exit_code == 0, done.exception
    assert "80 pictures of animals, 2 classes (cat, dog), 20 pixels a side" in done.stdout
    assert done.stdout.splitlines()[-1] == "next: pipeline run mine"
    files = written(folder)
    assert files.keys() == FILES
    assert all(isinstance(yaml.safe_load(files[name]), dict) for name in FILES if name.endswith(("yml", "yaml")))
    mine = yaml.safe_load(files["pipeline.yaml"])["experiments"]["mine"]
    assert mine["data"] == {"source": "folder", "root": "../animals"} and mine["boards"] == ["nucleo_f767zi"]
    found = json.loads(pipeline("resources", "mine", "--json", "--set", "data.image_px=20").stdout)
    for key, limit in mine["budget"].items():
        assert TypeAdapter(Count if key == "macs" else Bytes).validate_python(limit) == found["budget"][key]
        assert 0.4 * found["unpruned"][key] < found["budget"][key] < 0.8 * found["unpruned"][key]
    assert pipeline("plan", "mine", "--quick").exit_code == 0


def test_sounds_and_an_own_network_that_is_not_written_yet(folder: Path) -> None:
    clips(folder.parent / "noises")
    options = ("--sounds", "../noises", "--network", "nets_of_mine:build", "--board", "nucleo_h743zi2")
    done = pipeline("init", "heard", *options)
    assert done.exit_code == 0, done.exception
    assert written(folder).keys() == FILES - {"my_nets.py"} | {"nets_of_mine.py"}
    assert "def build(input_shape" in (folder / "nets_of_mine.py").read_text()
    heard = yaml.safe_load((folder / "pipeline.yaml").read_text())["experiments"]["heard"]
    assert heard["network"] == {"module": "nets_of_mine:build"} and heard["boards"] == ["nucleo_h743zi2"]


def test_files_that_are_there_stay_as_they_are(folder: Path) -> None:
    mine = {"README.md": "my own\n", "my_nets.py": "def make(classes):\n    raise ValueError('not yet')\n"}
    for name, text in mine.items():
        (folder / name).write_text(text)
    refused = pipeline("init", "--network", "my_nets:make")
    assert "my_nets:make: does not take these args (" in str(refused.exception)
    assert written(folder) == mine, "nothing is written if the network cannot be built"
    done = pipeline("init")
    assert done.exit_code == 0, done.exception
    assert "kept  README.md, which was there" in done.stdout and written(folder) | mine == written(folder)
    assert yaml.safe_load((folder / "pipeline.yaml").read_text())["experiments"].keys() == {"project"}
    again = pipeline("init", "other")
    assert isinstance(again.exception, ConfigError)
    assert "pipeline.yaml: is there already and is never overwritten; work in another folder" in str(again.exception)


def test_questions_on_a_terminal(folder: Path) -> None:
    """A real terminal: CliRunner's input is none, and nothing is asked there."""
    clips(folder.parent / "noises")
    ours, theirs = pty.openpty()
    os.write(ours, b"heard\ns\n../nowhere\n../noises\n\n\n")
    argv, env = [sys.executable, "-P", "-m", "pipeline.cli", "init"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, stdin=theirs, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("their folder, with one sub-folder for each class") == 2, "the first one was not there"
    assert yaml.safe_load((folder / "pipeline.yaml").read_text())["experiments"]["heard"]["data"]["root"] == "../noises"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--images nowhere", "nowhere: no such folder, needed class sub-folders of .wav files or pictures"),
        ("--images ../noises", "../noises: holds .wav files; use --sounds ../noises"),
        ("--sounds ../animals", "../animals: holds pictures; use --images ../animals"),
        ("--sounds ../noises --images ../animals", "--images, --sounds: found both, needed one of them"),
        ("--board nucleo", "--board: nucleo: unknown board, known are disco_f746ng, "),
        ("--network nets.py", "--network: found 'nets.py', needed file:function, such as my_nets:make"),
        ("kws_dscnn_s", "kws_dscnn_s: is an experiment already (pipeline list); choose another name"),
        ("3x/y", "3x/y: found no name, needed letters, digits, _ or -, such as: pipeline init mine"),
    ],
)
def test_a_mistake_gets_its_sentence_and_writes_nothing(folder: Path, arguments: str, sentence: str) -> None:
    clips(folder.parent / "noises")
    pictures(folder.parent / "animals")
    done = pipeline("init", *arguments.split())
    assert isinstance(done.exception, ConfigError) and sentence in str(done.exception)
    assert (done.stdout, written(folder)) == ("", {})
