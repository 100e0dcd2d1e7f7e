"""The arrows between the rooms run one way, and no room pulls in what it must not."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.engine.dag import load_steps
from pipeline.stage import Stage

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("pipeline", "stages", "boards", "hil", "data")
STEPS = ("prepare", "prune", "qat", "export", "bring", "firmware", "flash", "measure", "report")
CONTRACT = ("pipeline.stage", "pipeline.errors", "pipeline.units")
HEAVY = ("torch", "torchaudio", "torchvision", "tensorflow", "numpy", "pandas", "ray", "tflite_micro", "ai_edge_litert")


def modules() -> Iterator[tuple[str, Path]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full: the reader sees the room"
            yield node.module or ""


def room_of(module: str) -> str:
    """The room of a module; below stages, the step or shared room."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "stages" and len(parts) > 1 else parts[0]


def allowed(importer: str, imported: str) -> bool:
    if imported.split(".")[0] not in ROOMS or room_of(importer) == room_of(imported):
        return True
    room = importer.split(".")[0]
    if room == "pipeline":
        return False
    if imported.startswith("pipeline"):
        return imported in (CONTRACT if room == "stages" else ("pipeline.errors", "pipeline.units"))
    if room != "stages":
        return False
    return room_of(importer) == "stages.tools" or room_of(imported) in (
        *("boards", "hil", "data", "stages.graph", "stages.nets", "stages.training"),
    )


def wrong_arrows(importer: str, text: str) -> list[str]:
    return [f"{importer} -> {imported}" for imported in imports(text) if not allowed(importer, imported)]


def test_no_import_goes_against_the_arrows():
    assert [arrow for name, path in modules() for arrow in wrong_arrows(name, path.read_text())] == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("pipeline.engine.runner", "import hil.link.device_link"),
        ("pipeline.cli.__main__", "from stages.prune import stage"),
        ("hil.link.device_link", "from stages.graph import graph"),
        ("hil.link.device_link", "from pipeline.engine.cache import Cache"),
        ("boards", "import data"),
        ("stages.qat.stage", "from stages.prune.config import PruneConfig"),
        ("stages.graph.graph", "from stages.qat import stage"),
        ("stages.qat.stage", "def late():\n    import pipeline.engine.runner"),
    ],
)
def test_a_wrong_arrow_is_caught(importer, line):
    assert len(wrong_arrows(importer, line)) == 1


@pytest.mark.parametrize("step", STEPS)
def test_declaring_a_step_imports_nothing_heavy(step):
    code = f"import stages.{step}.stage, sys; sys.exit(', '.join(sorted({set(HEAVY)!r} & set(sys.modules))) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_top_level_holds_what_the_user_asked_for():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    top = {line.split("/")[0] for line in tracked}
    files = {"pipeline.yaml", "pyproject.toml", "README.md", "Makefile", "CHANGELOG.md", "LICENSE"}
    assert {name for name in top if not name.startswith(".")} == {*ROOMS, "tests", *files}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_each_room_has_a_short_readme(room):
    assert 5 <= len((ROOT / room / "README.md").read_text().splitlines()) <= 60


def every_program(stage: Stage) -> tuple[str, ...]:
    return (*stage.programs, *stage.twin_programs, *stage.optional_programs)


def test_every_program_a_step_needs_is_installed_by_make_and_named_in_pipeline_yaml():
    document = yaml.safe_load((ROOT / "pipeline.yaml").read_text())
    steps = load_steps(document["steps"])
    needed = {name for step in steps.values() for name in every_program(step.stage)}
    by_make = set(re.findall(r"([\w-]+):[\w-]+(?= \\\n|\n)", (ROOT / "Makefile").read_text().split(".PHONY")[0]))
    assert needed <= by_make
    assert needed <= document["programs"].keys()
