"""The whole pipeline on a small corpus, through the command line: data to numbers on both virtual twins."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pipeline.records.store import RunStore
from tests.pipeline.records.test_mix_up import check_run
from tests.stages.report.browser import HOW_TO_ENABLE, browser_program, open_page
from tests.test_readme import README, commands, of_a_finished_run

ROOT = Path(__file__).resolve().parent.parent
BOARDS = ("nucleo_f767zi", "nucleo_h743zi2")
LINES = set(filter(of_a_finished_run, commands()))  # of the README
# Small enough for a minute; wide enough that the pruner has to work before every budget holds.
SMALL = {
    "data.voices": "12", "data.prosodies": "2", "data.copies": "1", "network.width": "90", "prune.epochs": "4",
    "prune.start_step": "0", "prune.update_every": "1", "prune.rate": "16",
}  # fmt: skip


@dataclass(frozen=True)
class Workplace:
    """A copy of pipeline.yaml in a folder of its own: cache and runs land there."""

    folder: Path

    def command(self, *arguments: str, python: tuple[str, ...] = (), **settings: str) -> list[str]:
        overrides = [f"--set={key}={value}" for key, value in {**SMALL, **settings}.items()]
        return [sys.executable, *python, "-m", "pipeline.cli", *arguments, *overrides]

    def env(self, path: str | None = None) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path or os.environ["PATH"]}

    def pipeline(self, *arguments: str, python: tuple[str, ...] = (), path: str | None = None, **settings: str):
        command = self.command(*arguments, python=python, **settings)
        return subprocess.run(command, cwd=self.folder, env=self.env(path), capture_output=True, text=True, timeout=280)

    def file(self, name: str) -> Path:
        return self.folder / "runs" / "kws_dscnn_s-quick" / "latest" / name


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Workplace:
    """A finished small run."""
    place = Workplace(tmp_path_factory.mktemp("workplace"))
    shutil.copy(ROOT / "pipeline.yaml", place.folder)
    first = place.pipeline("run", "kws_dscnn_s", "--quick")
    assert first.returncode == 0, first.stderr
    assert "int8 accuracy" in first.stdout
    assert all(board in first.stdout for board in BOARDS)
    return place


def statuses(result: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    assert result.returncode == 0, result.stderr
    found: dict[str, set[str]] = {}
    for step in json.loads(result.stdout)["steps"]:
        found.setdefault(step["step"], set()).add(step["status"])
    return found


@pytest.mark.slow
def test_all_budgets_hold_and_nothing_virtual_poses_as_measured(done):
    rows = list(csv.DictReader(done.file("report/summary.csv").read_text().splitlines()))
    assert [row["board"] for row in rows] == list(BOARDS)
    for row in rows:
        assert (row["source"], row["fits"], row["n"]) == ("virtual", "true", "30")
        assert int(row["peak_bytes"]) <= 51_700 and int(row["size_bytes"]) <= 63_600 and int(row["macs"]) <= 8_351_000
        assert int(row["instructions"]) > int(row["macs"])
        assert float(row["latency_ms_modelled"]) == pytest.approx(
            int(row["cycles_modelled"]) / int(row["clock_hz"]) * 1e3, rel=1e-6
        )
        assert row["latency_ms"] == row["energy_mj"] == row["latency_ms_2sigma"] == row["energy_mj_2sigma"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_the_twin_gives_the_bytes_of_tflm_for_every_golden_input(done, board):
    golden, seen = np.load(done.file("export/golden.npz")), np.load(done.file(f"measure-{board}/outputs.npz"))
    assert len(golden["inputs"]) >= 30
    assert np.array_equal(golden["inputs"].reshape(seen["inputs"].shape), seen["inputs"])
    assert np.array_equal(golden["outputs"].reshape(seen["outputs"].shape), seen["outputs"])


@pytest.mark.slow
def test_the_network_of_a_run_is_published_and_its_card_gives_the_accuracy_again_to_the_example(done):
    def told(*words: str) -> dict:
        argv = [sys.executable, "-m", "pipeline.cli", *words, "--json"]
        found = subprocess.run(argv, cwd=done.folder, env=done.env(), capture_output=True, text=True, timeout=280)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    card = told("publish", "kws_dscnn_s-quick/latest", "--name", "small")
    exported = json.loads(done.file("export/accuracy.json").read_text())
    found = told(*shlex.split(card["evaluate"])[1:], "--out", str(done.folder / "evaluated"))
    assert card["data"]["settings"] == {"augment": "copies", "voices": 12, "prosodies": 2, "copies": 1}
    assert (found["accuracy"], found["n"]) == (card["accuracy"]["int8"], card["accuracy"]["n"])
    assert found["confusion"] == exported["confusion"]
    ours, theirs = (
        [(row["label"], row["int8"]) for row in csv.DictReader(file.read_text().splitlines())]
        for file in (done.folder / "evaluated" / "predictions.csv", done.file("export/predictions.csv"))
    )
    assert ours == theirs
    assert "small" in [each["name"] for each in told("zoo")["networks"]]


@pytest.mark.slow
def test_a_second_run_is_all_cached_and_does_not_import_torch(done):
    again = done.pipeline("run", "kws_dscnn_s", "--quick", "--json", python=("-X", "importtime"))
    assert set().union(*statuses(again).values()) == {"cached"}
    imported = {
        line.rpartition("|")[2].strip() for line in again.stderr.splitlines() if line.startswith("import time:")
    }
    assert "pipeline.engine.runner" in imported
    assert imported.isdisjoint({"torch", "numpy", "pandas", "tensorflow", "tflite_micro", "serial"})


class Words(HTMLParser):
    """The text of a page, and of its scripts that hold data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.data, self._script = "", {}, None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._script = dict(attributes).get("id", "") if tag == "script" else None
        self.text += " "

    def handle_endtag(self, tag):
        self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.text += data
        elif self._script:
            self.data[self._script] = json.loads(data)


@pytest.mark.slow
def test_page_csv_json_and_terminal_of_a_run_tell_the_same_numbers(done):
    terminal = done.pipeline("run", "kws_dscnn_s", "--quick").stdout
    record = json.loads(done.file("run.json").read_text())
    rows = list(csv.DictReader(done.file("report/summary.csv").read_text().splitlines()))
    page = Words(done.file("report/report.html").read_text())
    words = " ".join(page.text.split())
    assert record["rows"] == rows
    assert {row["run_id"] for row in rows} == {record["id"]} == {page.data["run-record"]["id"]}
    assert page.data["run-record"]["command"] == record["command"]
    for row in rows:
        exact = [f"{int(row[column]):,}" for column in ("peak_bytes", "size_bytes", "macs", "flash_bytes", "ram_bytes")]
        for figure in (*exact, f"{100 * float(row['accuracy_int8']):.2f}", f"{int(row['instructions']):,}"):
            assert figure in terminal and figure in words, figure
        for figure in (float(row["latency_ms_modelled"]), float(row["energy_mj_modelled"])):
            for text in (terminal, words):  # with three digits; CSV has nine, so a tie may fall to either side
                assert min(abs(float(each) - figure) for each in re.findall(r"\d+\.\d{3}\b", text)) <= 0.00051, figure
    charts = {
        chart["name"]: [dict(zip(chart["columns"], each, strict=True)) for each in chart["rows"]]
        for chart in page.data["chart-data"]
    }
    assert [each["used"] for each in charts["budgets"]] == [
        int(rows[0][column]) for column in ("peak_bytes", "size_bytes", "macs")
    ]
    layers = list(csv.DictReader(done.file("report/layers.csv").read_text().splitlines()))
    for row in rows:
        taken = [int(each["cycles_modelled"]) for each in layers if each["board"] == row["board"]]
        assert [each["taken"] for each in charts[f"layers_{row['board']}"]] == taken
        assert sum(taken) == int(row["cycles_modelled"])
    told = json.loads(done.file("export/accuracy.json").read_text())
    right = sum(each["examples"] for each in charts["confusion"] if each["true"] == each["chosen"])
    assert right / told["n"] == told["accuracy_int8"] == pytest.approx(float(rows[0]["accuracy_int8"]), rel=1e-8)
    predictions = list(csv.DictReader(done.file("export/predictions.csv").read_text().splitlines()))
    assert right == sum(each["label"] == each["int8"] for each in predictions) and len(predictions) == told["n"]


@pytest.mark.slow
def test_the_page_of_a_run_and_of_all_runs_open_in_a_browser(done):
    command = [sys.executable, "-m", "pipeline.cli", "report", "kws_dscnn_s", "--all", "--json"]
    made = subprocess.run(command, cwd=done.folder, env=done.env(), capture_output=True, text=True, timeout=280)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert found["runs"] >= 1 and {point["board"] for point in found["points"]} == set(BOARDS)
    if browser_program() is None:
        pytest.skip(HOW_TO_ENABLE)
    with open_page() as page:
        page.resize(1280)
        for path in (done.file("report/report.html"), done.folder / found["page"]):
            page.open(path)
            assert page.ask("document.querySelectorAll('.drawing').length") == page.ask(
                "document.querySelectorAll('.drawing svg').length"
            )
        assert page.problems == [] and page.requests == []


@pytest.mark.slow
def test_a_changed_qat_setting_reruns_qat_and_what_follows_and_nothing_before(done):
    """The first lines of `Usage` in the README."""
    assert {"pipeline run kws_dscnn_s --quick --set qat.epochs=4", "pipeline why kws_dscnn_s qat --quick"} <= LINES
    changed = {"qat.epochs": "4"}
    why = done.pipeline("why", "kws_dscnn_s", "qat", "--quick", **changed)
    assert why.stdout == "config.epochs: 2 -> 4\n" and f"# {why.stdout}" in README
    ran = statuses(done.pipeline("run", "kws_dscnn_s", "--quick", "--json", **changed))
    assert (ran["prepare"], ran["prune"], ran["qat"], ran["export"]) == ({"cached"}, {"cached"}, {"ran"}, {"ran"})
    back = done.pipeline("run", "kws_dscnn_s", "--quick", "--json")
    assert set().union(*statuses(back).values()) == {"cached"}
    assert done.pipeline("why", "kws_dscnn_s", "qat", "--quick").stdout == "config.epochs: 4 -> 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(line for line in LINES if "epochs=4" not in line and "why" not in line))
def test_a_line_of_the_readme_works_on_a_finished_run(done, line):
    words = shlex.split(line)[1:]
    if words[0] == "compare":  # with the run before
        assert done.pipeline("run", "kws_dscnn_s", "--quick").returncode == 0
    if words[0] in ("runs", "report", "compare"):  # take no settings
        argv = [sys.executable, "-m", "pipeline.cli", *words]
        ran = subprocess.run(argv, cwd=done.folder, env=done.env(), capture_output=True, text=True)
        assert ("kws_dscnn_s-quick" if words[0] != "compare" else " against ") in ran.stdout, ran.stderr
    else:
        # A changed image is built, and that it runs is seen by the tests of the stages.
        ran = done.pipeline(*words, *(["--only", "firmware"] if "firmware.front_end=mfcc" in words else []))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_in_every_run_firmware_and_network_belong_together(done):
    other = done.pipeline("run", "kws_dscnn_s", "--quick", "--board", BOARDS[0], "--virtual", **{"qat.epochs": "1"})
    assert other.returncode == 0, other.stderr
    runs = [run for run in RunStore(done.folder / "runs").runs("kws_dscnn_s-quick") if run.is_whole]
    models = set()
    for run in runs:
        check_run(run)
        golden = np.load(run.folder / "export" / "golden.npz")
        models.add((run.folder / "export" / "model.tflite").read_bytes())
        for board in (each["board"] for each in run.facts["boards"]):
            seen = np.load(run.folder / f"measure-{board}" / "outputs.npz")
            assert np.array_equal(golden["outputs"].reshape(seen["outputs"].shape), seen["outputs"])
    assert len(models) > 1 and not list(runs[-1].folder.glob(f"*{BOARDS[1]}"))


@pytest.mark.slow
def test_kill_minus_nine_in_the_middle_of_training_changes_no_byte(done):
    prune = ("run", "kws_dscnn_s", "--quick", "--only", "prune")
    other = {"prune.seed": "1"}
    with subprocess.Popen(
        done.command(*prune, **other), cwd=done.folder, env=done.env(), stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        assert any("prune: epoch" in line for line in run.stderr)
        run.kill()
    continued = done.pipeline(*prune, **other)
    assert (continued.returncode, ", resumed" in continued.stderr) == (0, True), continued.stderr
    undisturbed = done.pipeline(*prune, "--force", "prune", **other)
    assert undisturbed.returncode == 0
    assert "resumed" not in undisturbed.stderr
    assert "gave other bytes" not in undisturbed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", ["arm-none-eabi-gcc", "qemu-system-arm"])
def test_a_missing_tool_is_named_before_any_step_runs(done, tmp_path, program):
    kept = [name for name in ("arm-none-eabi-gcc", "qemu-system-arm", "espeak-ng", "gcc") if name != program]
    for name in kept:
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    refused = done.pipeline("run", "kws_dscnn_s", "--quick", path=str(tmp_path), **{"data.seed": "99"})
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(f"{program}: not found on PATH, needed by step ")
    assert "; install it with: apt-get install --no-install-recommends " in last
    assert "running" not in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"budget.size_bytes": "500B"}, "prune: budget.size_bytes: 500 B cannot be met"),
        ({"budget.size_bytes": "-63.6KB"}, "budget.size_bytes: found '-63.6KB', needed a quantity above zero"),
        ({"prune.rat": "1"}, "--set prune.rat=1: prune.rat: unknown key; did you mean 'rate'?"),
    ],
)
def test_a_bad_budget_or_key_is_one_sentence_and_exit_code_2(done, setting, sentence):
    refused = done.pipeline("run", "kws_dscnn_s", "--quick", **setting)
    assert refused.returncode == 2
    assert sentence in refused.stderr.splitlines()[-1]


@pytest.mark.slow
def test_without_quick_the_real_data_are_wanted_and_never_replaced(done):
    refused = done.pipeline("run", "kws_dscnn_s")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("prepare: ") and "--quick" in last and "data.root" in last
