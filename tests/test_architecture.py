"""The arrows between rooms and inside them run one way, no folder is crowded, and each says what it is for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest
import yaml

from pipeline.engine.dag import load_steps
from pipeline.stage import Stage

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("pipeline", "stages", "boards", "hil", "data")
STEPS = ("prepare", "prune", "qat", "export", "bring", "firmware", "flash", "measure", "charting", "report")
CONTRACT = ("pipeline.errors", "pipeline.units", "pipeline.text", "pipeline.stage")  # the last one for steps only
SHARED = ("boards", "hil", "data", "stages.graph", "stages.nets", "stages.training")  # what steps may use
TABLES_OF_CONTENTS = (".stage", ".__init__", ".__main__")  # they may name what lies in and below their folder
SOURCE_SUFFIXES = (".py", ".c", ".h", ".S", ".ld")
MOST_FILES = 15  # in a folder: more is a corridor with too many doors
HEAVY = (
    *("torch", "torchaudio", "torchvision", "tensorflow", "numpy", "pandas", "ray", "tflite_micro", "ai_edge_litert"),
    *("vl_convert", "jinja2"),
)


def sources() -> dict[str, str]:
    """Every module of ours: dotted name -> text. A package is named like its `__init__`."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in files}


def imports(text: str) -> Iterator[str]:
    """Every dotted name that is imported, also inside functions and for type checking; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full: the reader sees the room"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(imported: str, known: Collection[str]) -> str | None:
    """The module of ours that a dotted name lies in."""
    parts = imported.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((found for name in names for found in (name, f"{name}.__init__") if found in known), None)


def arrows(found: Mapping[str, str]) -> dict[str, set[str]]:
    """Which modules of ours each module imports."""
    return {
        name: {module for each in imports(text) if (module := module_of(each, found)) and module != name}
        for name, text in found.items()
    }


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Nodes that lead back to themselves; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def between_folders(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same arrows from folder to folder. What ties a folder together (`stage`, `__init__`) is no part of it."""

    def folder(module: str) -> str:
        is_table = module.endswith(TABLES_OF_CONTENTS) and module != "pipeline.stage"
        return module if is_table else module.rpartition(".")[0]

    result: dict[str, set[str]] = {}
    for module, imported in graph.items():
        result.setdefault(folder(module), set()).update(map(folder, imported))
    return {name: others - {name} for name, others in result.items()}


def room_of(module: str) -> str:
    """The room of a module; below stages, the step or shared room."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "stages" and len(parts) > 1 else parts[0]


def allowed(importer: str, imported: str) -> bool:
    room, to = room_of(importer), room_of(imported)
    if imported.split(".")[0] not in ROOMS or room == to:
        return True
    if room == "pipeline":
        return False
    if to == "pipeline":
        contract = CONTRACT if room.startswith("stages") else CONTRACT[:3]
        return any(imported == name or imported.startswith(f"{name}.") for name in contract)
    return room.startswith("stages.") and (room == "stages.tools" or to in SHARED)


def wrong_arrows(importer: str, text: str) -> list[str]:
    return [f"{importer} -> {imported}" for imported in imports(text) if not allowed(importer, imported)]


def test_no_import_goes_against_the_arrows():
    assert [arrow for name, text in sources().items() for arrow in wrong_arrows(name, text)] == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("pipeline.engine.runner", "import hil.link"),
        ("pipeline.cli.__main__", "from stages.prune import stage"),
        ("hil.link.device_link", "from stages.graph import graph"),
        ("hil.link.device_link", "from pipeline.engine.cache import Cache"),
        ("boards", "import data"),
        ("stages.qat.stage", "from stages.prune.config import PruneConfig"),
        ("stages.training.loop", "from stages.prune.config import PruneConfig"),
        ("stages.graph.graph", "from stages.qat import stage"),
        ("stages.graph.graph", "from stages.tools import inspection"),
        ("stages.qat.stage", "def late():\n    import pipeline.engine.runner"),
    ],
)
def test_a_wrong_arrow_is_caught(importer, line):
    assert len(wrong_arrows(importer, line)) == 1


def test_no_module_imports_itself_by_a_detour():
    assert cycle(arrows(sources())) == []


def test_sub_rooms_point_one_way():
    assert cycle(between_folders(arrows(sources()))) == []


@pytest.mark.parametrize(
    ("module", "line", "is_cycle_of_modules"),
    [
        ("stages.graph.graph", "from stages.graph.memory.resources import resources", True),
        ("stages.graph.graph", "def late():\n    from stages.graph.memory import resources", True),
        ("stages.graph.padding", "from stages.graph.judge.tflm_plan import scratch_bytes", False),
        ("stages.firmware.assembly.schedule", "from stages.firmware.build.toolchain import Toolchain", False),
        ("hil.link.replies", "from hil.virtual.twin import Twin", True),
        ("pipeline.digest", "if TYPE_CHECKING:\n    import pipeline.cli.output", False),
    ],
)
def test_an_arrow_back_is_caught(module, line, is_cycle_of_modules):
    found = sources()
    graph = arrows(found | {module: f"{found[module]}\n{line}\n"})
    assert bool(cycle(graph)) is is_cycle_of_modules
    assert cycle(between_folders(graph)) != []


def files_by_folder(names: Iterable[str]) -> dict[str, set[str]]:
    """Source files of each folder without their endings: a .c and its .h are one."""
    found: dict[str, set[str]] = {}
    for path in map(PurePosixPath, names):
        if path.suffix in SOURCE_SUFFIXES:
            found.setdefault(str(path.parent), set()).add(path.stem)
    return found


def crowded(names: Iterable[str]) -> list[str]:
    return [f"{folder}: {len(files)}" for folder, files in files_by_folder(names).items() if len(files) > MOST_FILES]


def tracked() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_folder_has_more_than_fifteen_source_files():
    assert crowded(tracked()) == []


@pytest.mark.parametrize("folder", ["stages/graph/memory", "boards/firmware/kernels", "tests/benchmarks"])
def test_a_sixteenth_file_is_caught(folder):
    room_left = MOST_FILES - len(files_by_folder(tracked())[folder])
    more = [f"{folder}/another_{number}{suffix}" for number in range(room_left) for suffix in (".c", ".h")]
    assert crowded([*tracked(), *more]) == []
    assert crowded([*tracked(), *more, f"{folder}/one_too_many.c"]) == [f"{folder}: {MOST_FILES + 1}"]


def test_every_folder_says_in_its_first_line_what_it_turns_into_what():
    folders = {str(PurePosixPath(name).parent) for name in tracked() if name.endswith(".py") and name[:5] != "tests"}
    for folder in folders:
        docstring = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
        assert 20 <= len(docstring.splitlines()[0] if docstring else "") <= 120, folder
    readme = (ROOT / "boards" / "README.md").read_text()
    for name in tracked():
        folder = PurePosixPath(name).parent
        if name.endswith(".c") and folder.is_relative_to("boards"):
            assert f"`{folder.relative_to('boards')}/`" in readme, folder


@pytest.mark.parametrize("step", STEPS)
def test_declaring_a_step_imports_nothing_heavy(step):
    code = f"import stages.{step}.stage, sys; sys.exit(', '.join(sorted({set(HEAVY)!r} & set(sys.modules))) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_top_level_holds_what_the_user_asked_for():
    top = {line.split("/")[0] for line in tracked()}
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


IMPORTED_AS = {
    "ai-edge-litert": "ai_edge_litert",
    "mbed-tools": "mbed_tools",
    "pillow": "PIL",
    "pyelftools": "elftools",
    "pyserial": "serial",
    "pyyaml": "yaml",
    "tensorflow-cpu": "tensorflow",
    "tflite-micro": "tflite_micro",
    "vl-convert-python": "vl_convert",
    "litert-torch": "litert_torch",
    "ai-edge-quantizer": "ai_edge_quantizer",
}


def test_every_dependency_is_imported_or_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = [each for name, group in project["optional-dependencies"].items() if name != "dev" for each in group]
    everything = "\n".join(sources().values())
    for requirement in (*project["dependencies"], *extras):
        name = re.split(r"[<>=\[]", requirement)[0]
        module = IMPORTED_AS.get(name, name)
        is_imported = re.search(rf'(import|from) {module}\b|"{module}[".]', everything)
        has_reason = any(f'"{requirement}"' in line and "#" in line for line in text.splitlines())
        assert is_imported or has_reason, requirement


def test_where_to_change_what_names_files_that_exist():
    table = (ROOT / "README.md").read_text().split("## Where to change what")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    for change, places in rows:
        files = re.findall(r"`([^`]+)`", places)
        assert 2 <= len(files) <= 3, change
        assert all((ROOT / file).exists() for file in files), (change, files)
