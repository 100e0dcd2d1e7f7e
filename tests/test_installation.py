"""The wheel holds everything: installed without the clone, it works in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stages.graph.tflite.writer import write_tflite
from tests.pipeline.cli.test_mistakes import USERS_FILE
from tests.stages.graph.int8_graphs import residual_network

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the wheel; what it needs comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    source = folder / "source"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):  # a copy: a build leaves folders in its source
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    built = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    for argv in ([*pip, *built], [*pip, "install", "--no-deps", "--target", str(folder / "site")]):
        wheels = list(map(str, folder.glob("*.whl")))
        done = subprocess.run([*argv, *wheels], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder / "site"


def pipeline(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "pipeline.cli", *arguments]
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=280)


def test_an_installed_wheel_compiles_somebodys_network_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(write_tflite(residual_network(0), "test"))
    done = pipeline(installed, tmp_path, "compile", "net.tflite", "-o", "made", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ops"] > 3 and (tmp_path / "made" / "cortex_m7" / "model.c").exists()


def test_an_installed_wheel_knows_the_built_in_experiments_and_builds_on_them(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(USERS_FILE)
    listed = pipeline(installed, tmp_path, "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert {"mine", "kws_dscnn_s", "imagenet_etinynet"} <= {item["experiment"] for item in json.loads(listed.stdout)}
    planned = pipeline(installed, tmp_path, "plan", "mine", "--json")
    assert planned.returncode == 0, planned.stderr


def test_the_wheel_holds_no_tests_and_all_the_firmware(installed: Path) -> None:
    (wheel,) = installed.parent.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith("tests/")]
    tracked = subprocess.run(["git", "ls-files", "boards", "hil", "data"], cwd=ROOT, capture_output=True, text=True)
    needed = [name for name in tracked.stdout.split() if name.endswith((".c", ".h", ".ld", ".yaml", ".py"))]
    assert len(needed) > 100 and set(needed) <= set(names)
