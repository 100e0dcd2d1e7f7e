"""A run's pages, images and sources into a folder of MLCommons' published layout.

    <division>/<submitter>/systems/<system>.json
                           code/<benchmark>/<implementation>/    sources, images, the runner's files, README, SHA256SUMS
                           results/<system>/<task>/{performance,accuracy,energy}/{log.txt,results.txt,results.json}

A network that was pruned is not MLCommons' own: it goes to the open division. A twin's folder says on every page that
it is none of a board.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from boards import Board
from pipeline.errors import ConfigError
from stages.tools.mlperf.pages import VIRTUAL
from stages.tools.mlperf.runner_files import write_runner_files
from stages.tools.mlperf.tasks import Task

IMPLEMENTATION = "tinyml_pipeline"
SUMS = "SHA256SUMS"
FACTS = "implementation.json"
Division = Literal["open", "closed"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the code folder says of itself, for the checker."""

    task: str
    system: str
    device: str  # name on the link
    division: Division
    pruned: bool
    source: str
    build_ids: Mapping[str, str]  # image -> build id: performance (accuracy, too), energy
    model_sha256: str
    clock_hz: int
    inferences: int  # in a window


def check_division(division: str, pruned: bool) -> Division:
    """Refuses what cannot be."""
    if division not in ("open", "closed"):
        raise ConfigError(f"--division: found {division!r}, needed open or closed")
    if division == "closed" and pruned:
        raise ConfigError("--division closed: the network was pruned, which the rules allow in the open division only")
    return "open" if division == "open" else "closed"


def system_id(board: Board, virtual: bool) -> str:
    return f"virtual_{board.name}" if virtual else board.name


def write_system(folder: Path, board: Board, facts: Facts, submitter: str, compiler: str) -> None:
    """systems/<system>.json"""
    virtual = facts.source == "virtual"
    ram = sum(memory.size for memory in board.memories.values() if memory.kind != "flash")
    record = {
        **({"Notice": VIRTUAL} if virtual else {}),
        "Submitter": submitter,
        "Division": facts.division.title(),
        "Status": "Virtual, not a submission" if virtual else "Available",
        "Board Name": f"virtual {board.name}" if virtual else board.name,
        "SoC Name": board.mcu,
        "Processor(s) Name": "32-bit Arm Cortex-M7",
        "Processor(s) Frequencies": f"{facts.clock_hz / 1e6:g} MHz",
        "Processor memory type and capacity": f"{ram // 1024} KiB RAM",
        "Processor storage type and capacity": f"{board.memories['flash'].size // 1024} KiB flash",
        "Accelerator": "",
        "Hardware Notes": "",
        "Inference Framework": "tinyml-pipeline, ahead of time compiled",
        "Operating System": "bare metal",
        "General Compiler(s)": compiler,
        "Quantization Method": "int8",
        "Training and Quantization Notes": "channel pruning during training" if facts.pruned else "",
    }
    (folder / "systems").mkdir(parents=True, exist_ok=True)
    (folder / "systems" / f"{facts.system}.json").write_text(json.dumps(record, indent=1) + "\n")


def write_code(
    folder: Path, task: Task, board: Board, facts: Facts, artifacts: Mapping[str, Mapping[str, Path]], command: str
) -> Path:
    """code/<benchmark>/<implementation>/: `artifacts` of the images by their mode."""
    code = code_folder(folder, task)
    shutil.rmtree(code, ignore_errors=True)
    code.mkdir(parents=True)
    for mode, made in artifacts.items():
        for name in ("image", "image_bin", "image_hex", "twin", "footprint"):
            shutil.copyfile(made[name], code / f"{mode}_{made[name].name}")
        shutil.copytree(made["generated"], code / f"{mode}_sources")
    first = next(iter(artifacts.values()))
    shutil.copyfile(first["model"], code / "model.tflite")
    baud = json.loads(first["footprint"].read_text())["link"]["baud"]
    write_runner_files(code, board, baud, task, facts.inferences)
    (code / FACTS).write_text(json.dumps(asdict(facts), indent=1) + "\n")
    (code / "README.md").write_text(_readme(task, board, facts, command))
    (code / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums(code)))
    return code


def code_folder(folder: Path, task: Task) -> Path:
    return folder / "code" / task.benchmark / IMPLEMENTATION


def results_folder(folder: Path, system: str, task: Task) -> Path:
    return folder / "results" / system / task.folder


def sums(code: Path) -> Iterable[tuple[str, str]]:
    """Every file but the list itself."""
    for path in sorted(code.rglob("*")):
        if path.is_file() and path.name != SUMS:
            yield path.relative_to(code).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()


def write_readme(folder: Path, facts: Facts, submitter: str) -> None:
    """README.md of the whole folder."""
    notice = f"**{VIRTUAL}**\n\n" if facts.source == "virtual" else ""
    (folder / "README.md").write_text(
        f"# {submitter}: MLPerf Tiny, {facts.division} division\n\n{notice}"
        "`systems/` what was measured, `code/` with what, and how to do it again, `results/` what came out.\n"
        "Check it: `pipeline mlperf-check FOLDER`.\n"
    )


def _readme(task: Task, board: Board, facts: Facts, command: str) -> str:
    notice = f"**{VIRTUAL}**\n\n" if facts.source == "virtual" else ""
    steps = (
        f"    {command}\n\n"
        "does all of it. With MLCommons' runner: flash `performance_firmware.bin` "
        f"(`openocd -f {board.flashing.openocd_config} -c 'program performance_firmware.elf verify reset exit'`),\n"
        "then\n\n"
        "    python main.py -d devices.yaml -t tests_performance.yaml -s DATASETS -m p\n"
        "    python main.py -d devices.yaml -t tests_accuracy.yaml -s DATASETS -m a\n\n"
        "and with `energy_firmware.bin`, an instrument and the timestamp pin wired\n\n"
        "    python main.py -d devices.yaml -t tests_energy.yaml -s DATASETS -m e\n"
    )
    audio = (
        "\nThe firmware takes audio over the serial line (`audio`, `stream feed`), not over I2S: the interface board's"
        " player needs a driver that is not here.\n"
        if task.stream
        else ""
    )
    return f"# {task.benchmark} on {facts.device}\n\n{notice}{steps}{audio}\nFiles: `{SUMS}`, facts: `{FACTS}`.\n"


def facts_of(code: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((code / FACTS).read_text())
    return found
