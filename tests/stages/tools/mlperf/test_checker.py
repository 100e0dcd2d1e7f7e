"""The checker of a submission folder: what the command makes passes, each planted mistake is found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from boards import load_board
from hil.instruments.energy_run import EnergySeen
from pipeline.errors import ConfigError
from stages.tools.mlperf.checker import check
from stages.tools.mlperf.host import Identity, Scored, Window
from stages.tools.mlperf.pages import VIRTUAL, accuracy_page, energy_page, performance_page
from stages.tools.mlperf.submission import (
    SUMS,
    Facts,
    check_division,
    code_folder,
    results_folder,
    sums,
    write_code,
    write_readme,
    write_system,
)
from stages.tools.mlperf.tasks import TASKS

BOARD = load_board("nucleo_f767zi")
TASK = TASKS["KWS"]


def made(
    folder: Path, *, virtual: bool = False, division: str = "closed", right: int = 10, pruned: bool = False
) -> Path:
    """A folder as the command lays it out, of a device that was right for so many of ten inputs."""
    root = folder / division / "we"
    name = "virtual nucleo_f767zi" if virtual else "nucleo_f767zi"
    builds = {"performance": "0" * 16, "energy": "e" * 16}
    facts = Facts(
        **{"task": "KWS", "system": name.replace(" ", "_"), "device": name, "division": division, "pruned": pruned},
        **{"source": "virtual" if virtual else "hardware", "build_ids": builds, "model_sha256": "m"},
        **{"clock_hz": BOARD.clock_hz, "inferences": 500},
    )
    artifacts: dict[str, dict[str, Path]] = {}
    for mode, build_id in builds.items():
        images = folder / "images" / mode
        (images / "generated").mkdir(parents=True)
        (images / "generated" / "model.c").write_text("int8_t weights[];\n")
        names = {"image": "firmware.elf", "image_bin": "firmware.bin", "image_hex": "firmware.hex", "twin": "twin.elf"}
        for file in (*names.values(), "model.tflite"):
            (images / file).write_text(f"{file} of {mode}")
        (images / "footprint.json").write_text(json.dumps({"build_id": build_id, "link": {"baud": 115200}}))
        artifacts[mode] = {key: images / file for key, file in names.items()}
        artifacts[mode] |= {key: images / key for key in ("generated",)}
        artifacts[mode] |= {"footprint": images / "footprint.json", "model": images / "model.tflite"}
    write_system(root, BOARD, facts, "we", "gcc")
    write_code(root, TASK, BOARD, facts, artifacts, "pipeline mlperf KWS")
    write_readme(root, facts, "we")
    windows = [Window(f"{i}.bin", i, 500, 1000, 10_501_000, (0.25, 0.75)) for i in range(5)]
    scored = [Scored(f"{i}.bin", 1, (0.1, 0.9) if i < right else (0.9, 0.1)) for i in range(10)]
    edges = [(None, SimpleNamespace(duration_s=10.2)) for _ in range(5)]
    report = SimpleNamespace(energies_j=(0.02, 0.02, 0.021, 0.02, 0.02))
    seen = EnergySeen("js220", 500, report, tuple(edges), 0)  # type: ignore[arg-type]
    for page in (performance_page((), windows), accuracy_page(TASK, (), scored), energy_page((), seen, "mcu")):
        log = (f"Device name retrieved: {name}", "Device model retrieved: kws01")
        identity = Identity(name, "kws01", builds["energy" if page.mode == "energy" else "performance"])
        replace(page, log=log).write(results_folder(root, facts.system, TASK) / page.mode, identity)
    shutil.rmtree(folder / "images")
    return root


def test_a_whole_folder_passes(tmp_path: Path) -> None:
    verdict = check(made(tmp_path))
    assert (verdict.findings, verdict.virtual, verdict.tasks) == ((), False, ("KWS",))
    assert verdict.text == "whole and consistent: KWS"


def test_a_twins_folder_may_be_whole_and_is_no_submission(tmp_path: Path) -> None:
    verdict = check(tmp_path if made(tmp_path, virtual=True, division="open") else tmp_path)
    assert verdict.findings == () and verdict.virtual
    assert VIRTUAL in verdict.text


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, path
    path.write_text(text.replace(old, new))


def again_hashed(root: Path) -> None:
    code = code_folder(root, TASK)
    (code / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums(code)))


RESULTS = "results/nucleo_f767zi/kws"
CODE = "code/keyword_spotting/tinyml_pipeline"
Plant = Callable[[Path], object]
MISTAKES: list[tuple[str, Plant, str]] = [
    ("a log is missing", lambda root: (root / RESULTS / "accuracy/log.txt").unlink(), r"accuracy/log\.txt: missing"),
    (
        "an image was changed",
        lambda root: (root / CODE / "performance_firmware.bin").write_text("another"),
        r"performance_firmware\.bin: SHA-256 is \w+, SHA256SUMS has",
    ),
    (
        "a window is too short",
        lambda root: edited(root / RESULTS / "performance/results.json", "10500000", "9999999"),
        r"performance: a window lasts 10\.000 s|performance: a window lasts 9\.\d+ s, needed 10 s",
    ),
    (
        "a window is left out",
        lambda root: (root / RESULTS / "energy/results.json").write_text(
            json.dumps(json.loads((root / RESULTS / "energy/results.json").read_text())[:4])
        ),
        "energy: 4 windows, needed 5",
    ),
    (
        "the energy is another board's",
        lambda root: edited(root / RESULTS / "energy/log.txt", ": nucleo_f767zi", ": nucleo_h743zi2"),
        "energy: the log is of nucleo_h743zi2, needed nucleo_f767zi",
    ),
    (
        "accuracy is another image's",
        lambda root: edited(root / RESULTS / "accuracy/results.json", "0" * 16, "1" * 16),
        "accuracy: results of another image or board",
    ),
    (
        "a figure was improved",
        lambda root: edited(root / RESULTS / "performance/results.txt", "47.619", "48.619"),
        r"performance/results\.txt: does not say 'ulp-mlperf: Median throughput is",
    ),
    (
        "the log is a twin's",
        lambda root: edited(root / RESULTS / "performance/log.txt", ": nucleo", ": virtual nucleo"),
        r"performance/results\.txt: does not say that it is a twin's",
    ),
    (
        "another task's log",
        lambda root: edited(root / RESULTS / "accuracy/log.txt", "kws01", "ic01"),
        "accuracy: the log is of model ic01, needed kws01",
    ),
    (
        "the system is not described",
        lambda root: next((root / "systems").iterdir()).unlink(),
        r"results/nucleo_f767zi: no systems/nucleo_f767zi\.json",
    ),
    (
        "the system says another division",
        lambda root: edited(root / "systems/nucleo_f767zi.json", '"Closed"', '"Open"'),
        "division 'Open' in folder 'closed'",
    ),
    (
        "it cannot be reproduced",
        lambda root: (root / CODE / "README.md").unlink(),
        r"no code/keyword_spotting/tinyml_pipeline/ with README\.md",
    ),
    (
        "nobody knows where the current was measured",
        lambda root: edited(root / RESULTS / "energy/results.json", '"mcu"', '""'),
        "energy: no measurement point",
    ),
    ("no accuracy at all", lambda root: shutil.rmtree(root / RESULTS / "accuracy"), "kws: no accuracy/"),
    (
        "results are no JSON",
        lambda root: (root / RESULTS / "accuracy/results.json").write_text("[{"),
        r"accuracy/results\.json: not a list of results",
    ),
]


@pytest.mark.parametrize(("plant", "finding"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_planted_mistake_is_found(plant: Plant, finding: str, tmp_path: Path) -> None:
    root = made(tmp_path)
    plant(root)
    assert any(re.search(finding, one) for one in check(root).findings), check(root).findings


def test_accuracy_below_the_target_is_found_in_the_closed_division_only(tmp_path: Path) -> None:
    (finding,) = check(made(tmp_path / "closed", right=8)).findings
    assert finding.endswith("kws/accuracy: top1 is 0.800, needed 0.9")
    assert check(made(tmp_path / "open", right=8, division="open")).findings == ()


def test_a_pruned_network_belongs_to_the_open_division(tmp_path: Path) -> None:
    (finding,) = check(made(tmp_path, pruned=True)).findings
    assert finding.endswith("a pruned network in the closed division, needed open")
    with pytest.raises(ConfigError, match="the network was pruned"):
        check_division("closed", pruned=True)


@pytest.mark.parametrize("page", ["README.md", "systems/*.json", "results/**/log.txt", "results/**/results.txt"])
def test_every_page_of_a_twin_must_say_so(page: str, tmp_path: Path) -> None:
    root = made(tmp_path, virtual=True, division="open")
    for path in root.glob(page):
        edited(path, VIRTUAL, "measured")
    findings = check(root).findings
    assert findings and all("does not say that it is a twin's" in one for one in findings)


def test_an_empty_folder_is_no_submission(tmp_path: Path) -> None:
    assert check(tmp_path).findings == (f"{tmp_path}: holds no systems/, needed <division>/<submitter>/systems",)
