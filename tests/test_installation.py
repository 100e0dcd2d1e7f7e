"""The wheel holds everything: installed without the clone, it works in an empty folder, on anybody's data."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from stages.graph.tflite.writer import write_tflite
from tests.data.examples.test_class_folders import clips, pictures
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


def budgets_hold(folder: Path, name: str) -> None:
    (row,) = csv.DictReader((folder / "runs" / name / "latest" / "report" / "summary.csv").read_text().splitlines())
    assert (row["fits"], row["source"], row["board"]) == ("true", "virtual", "nucleo_f767zi")


# Full sizes (600 pictures, 400 sounds, the defaults): python -m tests.benchmarks.users.new_users
@pytest.mark.slow
@pytest.mark.parametrize(("option", "make"), [("--images", pictures), ("--sounds", clips)])
def test_somebodys_folder_becomes_a_project_that_runs_within_its_budgets(
    installed: Path, tmp_path: Path, option: str, make: Callable[[Path], Path]
) -> None:
    make(tmp_path / "mine")
    (tmp_path / "project").mkdir()
    started = pipeline(installed, tmp_path / "project", "init", "first", option, "../mine")
    assert started.returncode == 0, started.stderr
    small = ["prune.epochs=4", "prune.batch=16", "qat.epochs=1", "measure.runs=3"]
    ran = pipeline(installed, tmp_path / "project", "run", "first", *(f"--set={each}" for each in small))
    assert ran.returncode == 0, ran.stderr
    assert "first on folder mine, 80 files" in ran.stdout and "Traceback" not in ran.stderr
    budgets_hold(tmp_path / "project", "first")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages that start the kernel
def test_the_example_notebook_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """It prunes somebody's residual network with a concatenation, by a run and in a loop of its own."""
    notebook = nbformat.read(installed / "pipeline" / "examples" / "first_steps.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(installed), "IPYTHONDIR": str(tmp_path / "ipython")})
    shown = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "int8 accuracy" in shown and "bit-identical on 20 random inputs" in shown, "results show themselves"
    assert "<progress" not in shown and "report: " not in shown, "progress is drawn as a table, and ends"
    assert (tmp_path / "shapes_in_c" / "README.md").exists()
    budgets_hold(tmp_path, "shapes")


USER_SCRIPT = """
from pathlib import Path

import torch
from torch import nn

from pipeline import PipelineError, Run, inspect, measure, optimize, prune, resources, run
from pipeline import compile as compile_network


def best_of(names: list[str]) -> Run:
    runs = [run(name, quick=True, set={"prune.epochs": 4, "data.root": Path("here")}) for name in names]
    return max(runs, key=lambda one: float(one.summary["accuracy_int8"].iloc[0]))


def figures(module: nn.Module) -> tuple[int, bool]:
    found = resources(module, (32, 32, 3), budget={"macs": "5M"})
    return found.macs, found.fits


def shrunk(module: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> nn.Module:
    pruner = prune(module, batches, {"size_bytes": 60_000}, steps=100)
    for x, y in batches:
        nn.functional.cross_entropy(pruner(x), y).backward()  # type: ignore[no-untyped-call]
        pruner.step()
    return pruner.shrink()


try:
    done = best_of(["kws_dscnn_s"])
    better = optimize(inspect_me := done.model, "better.tflite")
    latency: float | None = measure(better.model, "nucleo_f767zi", virtual=True).latency_ms_modelled
    print(inspect(inspect_me).peak_bytes, latency, compile_network(better.model, "c").ram_bytes, done.layers.columns)
except PipelineError as error:
    raise SystemExit(error.exit_code) from error
"""
MISUSES = {
    "inspect(3)": 'Argument 1 to "inspect" has incompatible type "int"',
    "run('x').sumary": '"Run" has no attribute "sumary"; maybe "summary"?',
    "compile_network('a', 'b', weights='big')": 'Argument "weights" to "compile" has incompatible type',
}


@pytest.mark.slow
def test_a_users_script_passes_strict_type_checks_and_misuse_does_not(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(USER_SCRIPT)
    (tmp_path / "wrong.py").write_text(USER_SCRIPT + "\n".join(MISUSES) + "\n")
    assert (installed / "pipeline" / "py.typed").exists()
    options = ["--strict", "--no-error-summary", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}"]
    argv = [sys.executable, "-m", "mypy", *options, "script.py", "wrong.py"]
    env = {**os.environ, "MYPYPATH": str(installed)}
    found = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    lines = found.stdout.splitlines()
    assert len(lines) == len(MISUSES) and all(line.startswith("wrong.py:") for line in lines), found.stdout
    for line, sentence in zip(lines, MISUSES.values(), strict=True):
        assert sentence in line
