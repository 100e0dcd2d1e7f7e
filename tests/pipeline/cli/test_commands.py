"""Commands on one network, and on all of them in CI: arguments reach tools and steps as they were given."""

from __future__ import annotations

import csv
import errno
import inspect
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.api.console import PlainReporter
from pipeline.ci.jobs import ci_config, tasks_of
from pipeline.cli.__main__ import app, main
from pipeline.config import load_project
from pipeline.engine.assembly import RunOptions
from pipeline.errors import ConfigError, HardwareAbsent
from pipeline.records.store import RunStore

NO_OPTIONS = RunOptions(boards=(), virtual=False, settings=())

STEP = """
from dataclasses import dataclass
from pathlib import Path
from pipeline.stage import Config, PerBoard, Target, stage

class {kind}Config(Config):
    {fields}

@dataclass(frozen=True)
class Made:
    {output}: Path

@stage("{name}")
def run({inputs}*, config: {kind}Config, {handed_in}out_dir: Path) -> Made:
    (out_dir / "deep").mkdir()
    (out_dir / "deep" / "{output}.txt").write_text(f"{text}")
    return Made({output}=out_dir / "deep" / "{output}.txt")
"""


def declared(name: str, output: str, text: str, fields: str, inputs: str = "", handed_in: str = "") -> str:
    return STEP.format(
        name=name, kind=name.title(), output=output, text=text, fields=fields, inputs=inputs, handed_in=handed_in
    )


TARGET = "target: Target, "
STEPS = {
    "bring": declared(
        *("bring", "net", "{Path(config.model['path']).name} {len(config.model['sha256'])} {config.inputs.keys()}"),
        "model: dict[str, str]; inputs: dict[str, str] = {}; labels: dict[str, str] = {}",
    ),
    "train": declared("train", "net", "{config.epochs}", "epochs: int = 7"),
    "flash": declared(
        *("flash", "image", "{net.read_text()} on {target.board} {target.source}"),
        *("slow: bool = False", "net: Path, ", TARGET),
    ),
    "measure": declared(
        *("measure", "samples", "{image.read_text()}: {config.runs} runs, {config.accuracy_inputs} inputs"),
        *("runs: int = 1; accuracy_inputs: int = 9", "image: Path, ", TARGET),
    ),
    "sum": declared(
        *("sum", "rows", "board,price,latency_ms\\n{''.join(f'{b},{config.price},' + chr(10) for b in samples)}"),
        *("price: float = 2.0", "samples: PerBoard, "),
    ),
}
TOOLS = """
from dataclasses import fields
from pathlib import Path
from pipeline.api import results
from pipeline.stage import Answer

KINDS = (results.Inspection, results.Optimization, results.Compilation, results.Measurement)
FIGURES = {field.name: 0 for kind in KINDS for field in fields(kind)}

def told(*arguments):
    plain = [str(a) if isinstance(a, Path) else a.model_dump() if hasattr(a, "model_dump") else a for a in arguments]
    return Answer(text="told", record={**FIGURES, "unpruned": FIGURES, "budget": {}, "asked": plain})

def measured(folders):
    found = {step: folder.is_dir() for step, folder in folders.items()}
    return Answer(text="measured", record={**FIGURES, **found, "price": 4.25, "latency_ms": None})

def keep(folders, out):
    for file in folders["measure"].rglob("*.txt"):
        (out / file.name).write_text(file.read_text())

def diff(artifacts, board, source, inputs):
    record = {"artifacts": sorted(artifacts), "asked": [board, source, inputs], "image": artifacts["image"].read_text()}
    return Answer(text="diff", record={**record, "identical": inputs == 3})

def attached():
    return ("kiln",)
"""
YAML = """
steps: {train: brought_train, flash: brought_flash, measure: brought_measure, sum: brought_sum}
model_steps: {bring: brought_bring, flash: brought_flash, measure: brought_measure}
tools:
  {resources: "brought_tools:told", inspect: "brought_tools:told", optimize: "brought_tools:told",
   import: "brought_tools:told", compile: "brought_tools:told", boards: "brought_tools:told",
   measured: "brought_tools:measured", keep: "brought_tools:keep", diff: "brought_tools:diff"}
bench: "brought_tools:attached"
show: {rows: rows}
ci: {models: [net.tflite], boards: [oven, kiln], retries: 1, baseline: base.csv, tolerances: {price: 1}}
defaults: {boards: [stove, kiln], flash: {slow: true}}
experiments:
  bread: {train: {epochs: 3}, quick: {train: {epochs: 2}}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Modules are imported by this process, so their names are used here alone."""
    root = tmp_path_factory.mktemp("brought")
    (root / "pipeline.yaml").write_text(YAML)
    (root / "brought_tools.py").write_text(TOOLS)
    (root / "net.tflite").write_bytes(b"net")
    (root / "x.npy").write_bytes(b"x")
    for name, text in STEPS.items():
        (root / f"brought_{name}.py").write_text(text)
    path = sys.path.copy()
    sys.path.insert(0, str(root))
    yield root
    sys.path[:] = path


def said(project: Path, *arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["--file", str(project / "pipeline.yaml"), *arguments, "--json"])
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def asked(project: Path, *arguments: str) -> Any:
    return said(project, *arguments)["asked"]


def test_arguments_reach_the_tools(project: Path) -> None:
    net, keras, rows = (str(project / name) for name in ("net.tflite", "net.keras", "x.npy"))
    Path(keras).write_text("")
    assert asked(project, "inspect", net) == [net, None]
    assert asked(project, "inspect", net, "--svg", "f.svg") == [net, "f.svg"]
    assert asked(project, "optimize", net, "-o", "b.tflite") == [net, "b.tflite"]
    assert asked(project, "import", keras, "--data", rows, "-o", "b.tflite") == [keras, rows, "b.tflite"]
    assert asked(project, "compile", net, "-o", "dir") == [net, "dir", "fast", "overlap"]
    assert asked(project, "boards") == [str(project / "bench.yaml")]


def test_a_network_of_somebody_runs_through_the_model_steps(project: Path) -> None:
    folder = project / "out"
    arguments = ["measure", str(project / "net.tflite"), "--board", "kiln", "--virtual", "--out", str(folder)]
    found = said(project, *arguments, "--runs", "5", "--set", "measure.accuracy_inputs=4")
    assert {step for step, is_folder in found.items() if is_folder is True} == {"bring", "flash", "measure"}
    written = folder / "samples.txt"
    assert written.read_text() == "net.tflite 64 dict_keys([]) on kiln virtual: 5 runs, 4 inputs"
    written.write_text("writable")
    said(project, *arguments, "--inputs", str(project / "x.npy"), "--labels", str(project / "x.npy"), "--accuracy", "2")
    assert written.read_text() == "net.tflite 64 dict_keys(['path', 'sha256']) on kiln virtual: 30 runs, 2 inputs"


def test_measure_refuses_what_cannot_be(project: Path) -> None:
    net, file = str(project / "net.tflite"), str(project / "x.npy")
    for arguments, sentence in (
        ([net, "--accuracy", "5"], "--accuracy: a .tflite file brings no test set; add --inputs X.npy and --labels"),
        (["bread", "--inputs", file], "--inputs, --labels: an experiment has its own test set"),
        (["bread", "--labels", file], "--inputs, --labels: an experiment has its own test set"),
        ([str(project / "gone.tflite")], "gone.tflite: cannot be read .No such file or directory.; check the path"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            said(project, "measure", *arguments, "--board", "kiln", "--virtual")


@pytest.mark.parametrize(
    ("boards", "only", "wanted"),
    [
        ("virtual", [], "bread-quick/stove/virtual bread-quick/kiln/virtual net/oven/virtual net/kiln/virtual"),
        ("attached", [], "bread-quick/kiln/hardware net/kiln/hardware"),
        ("all", ["net"], "net/kiln/hardware net/oven/virtual net/kiln/virtual"),
        (" kiln, kiln", ["bread"], "bread-quick/kiln/hardware bread-quick/kiln/hardware"),
    ],
)
def test_ci_runs_what_is_asked_on_the_boards_that_are_asked(
    project: Path, boards: str, only: list[str], wanted: str
) -> None:
    loaded = load_project(project / "pipeline.yaml")
    tasks = tasks_of(loaded, ci_config(loaded), boards, only, NO_OPTIONS, PlainReporter())
    assert " ".join("/".join(task.identity) for task in tasks) == wanted
    assert str(tasks[-1]).endswith(f"on kiln ({tasks[-1].target.source})")


def test_ci_without_a_board_is_hardware_absent(project: Path) -> None:
    loaded = load_project(project / "pipeline.yaml")
    for boards, sentence in (("stove", "--boards stove: not attached"), (",", "attached boards are kiln; attach one")):
        with pytest.raises(HardwareAbsent, match=sentence):
            tasks_of(loaded, ci_config(loaded), boards, [], NO_OPTIONS, PlainReporter())


def test_ci_compares_with_the_baseline_that_it_wrote(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--baseline .*gone.csv: no such file; make it with --update-baseline"):
        said(project, "ci", "--baseline", str(project / "gone.csv"))
    first = said(project, "ci", "--update-baseline")
    assert [row["status"] for row in first] == ["ok"] * 4
    assert {one["verdict"] for row in first for one in row["comparisons"]} == {"new"}
    written = list(csv.DictReader((project / "base.csv").read_text().splitlines()))
    assert [(row["experiment"], row["board"], row["price"]) for row in written] == [
        ("bread-quick", "kiln", "2.0"),
        ("bread-quick", "stove", "2.0"),
        ("net", "kiln", "4.25"),
        ("net", "oven", "4.25"),
    ]
    table, junit = tmp_path / "out" / "rows.csv", tmp_path / "out" / "junit.xml"
    asked = ["ci", "--experiments", "bread", "--csv", str(table), "--junit", str(junit)]
    worse = said(project, *asked, "--set", "sum.price=3.5", code=1)
    assert [(row["status"], row["comparisons"][0]["verdict"]) for row in worse] == [("regression", "regression")] * 2
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["board"], row["status"], row["retries"], row["price"]) for row in rows] == [
        ("stove", "regression", "0", "3.5"),
        ("kiln", "regression", "0", "3.5"),
    ]
    assert 'failures="2"' in junit.read_text()
    text = CliRunner().invoke(app, ["--file", str(project / "pipeline.yaml"), *asked, "--set", "sum.price=0.5"])
    assert text.exit_code == 0
    assert text.stdout.splitlines()[1].split() == ["bread-quick", "stove", "virtual", "ok", "0", "1", "0", "1"]
    assert text.stdout.splitlines()[3] == (
        "bread-quick on stove (virtual): improved: price: 0.5, baseline 2 (-75.00 %, tolerance 1)"
    )


def test_why_and_plan_name_what_changed(project: Path) -> None:
    """An experiment of its own, in the cache of the others."""
    (project / "why.yaml").write_text(f"{YAML}  rusk: {{train: {{epochs: 9}}}}\n  toast: {{train: {{epochs: 9}}}}\n")

    def answer(command: str, *arguments: str) -> str:
        done = CliRunner().invoke(app, ["--file", str(project / "why.yaml"), command, *arguments, "--virtual"])
        assert done.exception is None, done.exception
        return done.stdout

    assert answer("why", "rusk", "train") == "never run here; everything is new\n"
    assert answer("why", "rusk", "sum") == "measure[stove] has to run first; ask: pipeline why rusk measure\n"
    answer("run", "rusk", "--board", "stove")
    assert answer("why", "rusk", "train") == "up to date; first run, everything was new\n"
    assert answer("why", "toast", "train") == "cached by another experiment; never run here\n"
    assert answer("why", "rusk", "flash").splitlines() == [
        "flash[stove]: up to date; first run, everything was new",
        "flash[kiln]: never run here; everything is new",
    ]
    assert answer("why", "rusk", "train", "--set", "train.epochs=8") == "config.epochs: 9 -> 8\n"
    plan = answer("plan", "rusk", "--board", "stove", "--set", "measure.runs=2", "--set", "measure.accuracy_inputs=2")
    assert [" ".join(line.split()) for line in plan.splitlines()] == [
        "train cached",
        "flash[stove] cached",
        "measure[stove] will run config.accuracy_inputs: 9 -> 2 and 1 more",
        "sum may run after measure[stove]",
    ]
    for entry in (project / ".pipeline" / "entries" / "train").iterdir():
        shutil.rmtree(entry)
    assert answer("why", "rusk", "train") == "the entry is no longer in the cache; nothing else changed\n"
    assert " ".join(answer("plan", "rusk").splitlines()[0].split()) == "train will run not in the cache"


def test_gc_takes_quantities_with_units(project: Path) -> None:
    def swept(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["--file", str(project / "pipeline.yaml"), "gc", *arguments])
        if isinstance(done.exception, ConfigError):
            raise done.exception
        return done.stdout

    said(project, "measure", "bread", "--board", "kiln", "--virtual")
    entries = list((project / ".pipeline" / "entries").glob("*/*"))
    assert swept().startswith("removed 0 dropped runs and 0 entries, 0.0 MB; ")
    for option in ("--max-age", "--max-size"):
        with pytest.raises(ConfigError, match=f"{option}: found '5': missing unit"):
            swept(option, "5")
    kept = RunStore(project / "runs").runs()
    for run in kept:
        RunStore(project / "runs").drop(run)
    assert (
        swept("--max-size", "1B")
        == f"removed {len(kept)} dropped runs and {len(entries)} entries, 0.0 MB; 0.0 MB kept\n"
    )


def test_diff_runs_until_the_device_holds_the_network(project: Path) -> None:
    same = said(project, "diff", "bread", "--board", "kiln", "--virtual", "--quick")
    assert (same["artifacts"], same["asked"]) == (["image", "net"], ["kiln", "virtual", 3])
    assert same["image"] == "2 on kiln virtual"
    other = said(project, "diff", "bread", "--board", "kiln", "--virtual", "--inputs", "1", code=1)
    assert (other["asked"], other["image"]) == (["kiln", "virtual", 1], "3 on kiln virtual")


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.callback.__name__)
def test_nothing_is_switched_on_that_was_not_asked_for(command) -> None:
    defaults = {name: one.default for name, one in inspect.signature(command.callback).parameters.items()}
    assert not [name for name, default in defaults.items() if default is True]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the cache: disk full while writing"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out.csv"), "out.csv: disk full while writing"),
        (PermissionError(errno.EACCES, "Permission denied", "out.csv"), "out.csv: Permission denied; check the path"),
    ],
)
def test_what_the_disk_refuses_is_one_sentence(error, sentence, monkeypatch, capsys) -> None:
    def refused() -> None:
        raise error

    monkeypatch.setattr("pipeline.cli.__main__.app", refused)
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err.startswith(sentence)
