"""pipeline ci: retries counted apart from regressions, JUnit XML for standard parsers, a slowed kernel caught."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.ci.baseline import Tolerance
from pipeline.ci.jobs import Task, run_task, suites_of
from pipeline.ci.junit import write_junit
from pipeline.engine.executor import StepFailed
from pipeline.errors import LinkTimeout, PipelineError, StageError
from pipeline.stage import Target
from stages.graph.tflite.writer import write_tflite
from tests.stages.measure.conftest import small_network

ROOT = Path(__file__).parents[3]
TOLERANCES = {"latency_ms": Tolerance(relative=0.05)}
ROW = {"experiment": "kws", "board": "b", "source": "hardware", "latency_ms": "20"}


def task(failures: list[PipelineError], latency_ms: str = "20") -> Task:
    def run() -> dict[str, str]:
        if failures:
            raise failures.pop(0)
        return {**ROW, "latency_ms": latency_ms}

    return Task("kws", Target("b", "hardware"), run)


def test_infrastructure_faults_are_tried_again_and_counted() -> None:
    faults = [LinkTimeout("b: no sync"), StepFailed("measure[b]: overrun", 1, None, infrastructure=True)]
    result = run_task(task(faults), 2, ROW, TOLERANCES)
    assert (result.status, result.retries) == ("ok", ("b: no sync", "measure[b]: overrun"))


def test_infrastructure_that_stays_broken_is_no_regression() -> None:
    result = run_task(task([LinkTimeout("b: no sync")] * 3), 2, ROW, TOLERANCES)
    assert (result.status, result.error, len(result.retries)) == ("infrastructure", "b: no sync", 2)


def test_a_step_that_fails_is_not_tried_again() -> None:
    failures: list[PipelineError] = [StageError("output differs"), StageError("never seen")]
    result = run_task(task(failures), 2, ROW, TOLERANCES)
    assert (result.status, result.error, result.retries, len(failures)) == ("failed", "output differs", (), 1)


def test_a_figure_that_got_worse_is_a_regression_and_not_tried_again() -> None:
    result = run_task(task([], "21.5"), 2, ROW, TOLERANCES)
    assert (result.status, result.retries) == ("regression", ())
    assert [str(one) for one in result.regressions] == ["latency_ms: 21.5, baseline 20 (+7.50 %, tolerance 5 %)"]


def test_junit_tells_regressions_faults_and_retries_apart(tmp_path: Path) -> None:
    results = [
        run_task(task([LinkTimeout("b: no \x00sync <&>")], "21.5"), 2, ROW, TOLERANCES),
        run_task(task([LinkTimeout("gone")] * 3), 2, ROW, TOLERANCES),
        run_task(task([StageError("differs")]), 2, ROW, TOLERANCES),
        run_task(task([]), 2, None, TOLERANCES),
    ]
    write_junit(tmp_path / "junit.xml", suites_of(results))
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    assert [told.get("type") for told in suite.iter("failure")] == ["regression", "step"]
    assert [told.get("type") for told in suite.iter("error")] == ["infrastructure"]
    assert suite.find("properties/property[@name='infrastructure_retries']").get("value") == "3"
    assert "tried again: b: no ?sync <&>" in suite.findtext("testcase/system-out", "")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of this project with a small network of its own to run in CI."""
    for room in ("pipeline", "stages", "boards", "hil", "data"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "pipeline.yaml").read_text()
    head, rest = text.split("\nci:", 1)
    section = "ci: {experiments: [], models: [small.tflite], boards: [nucleo_f767zi], baseline: baseline.csv}\n"
    (tmp_path / "pipeline.yaml").write_text(f"{head}\n{section}\ndefaults:{rest.split('defaults:', 1)[1]}")
    (tmp_path / "small.tflite").write_bytes(write_tflite(small_network(), "ci"))
    return tmp_path


def cli(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def ci(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cli(project, "ci", "--boards", "virtual", *arguments)


@pytest.mark.slow
def test_a_slowed_kernel_is_caught_against_the_baseline(project: Path) -> None:
    first = ci(project, "--update-baseline")
    assert first.returncode == 0, first.stderr
    again = ci(project, "--junit", "out/junit.xml", "--csv", "out/rows.csv")
    assert again.returncode == 0, again.stdout + again.stderr
    assert ElementTree.parse(project / "out" / "junit.xml").getroot().get("failures") == "0"

    same = cli(project, "diff", "small.tflite", "--board", "nucleo_f767zi", "--virtual")
    assert (same.returncode, same.stdout.strip()) == (
        0,
        "nucleo_f767zi (virtual): all 4 ops are bit-identical on host and device for 3 inputs",
    )

    kernel = project / "boards" / "firmware" / "kernels" / "softmax.c"
    source = kernel.read_text()
    begin = source.index("\n{\n", source.index("\nvoid softmax")) + 3
    delay = "    for (volatile int spin = 0; spin < 3000; spin++) {\n    }\n"
    kernel.write_text(source[:begin] + delay + source[begin:])
    slowed = ci(project, "--junit", "out/junit.xml", "--csv", "out/rows.csv", "--json")
    assert slowed.returncode == 1, slowed.stdout + slowed.stderr
    record = json.loads(slowed.stdout)[0]
    worse = {one["column"] for one in record["comparisons"] if one["verdict"] == "regression"}
    assert (record["status"], record["retries"]) == ("regression", [])
    assert {"instructions", "cycles_modelled", "latency_ms_modelled"} <= worse
    assert not worse & {"ram_bytes", "arena_bytes"}
    failures = ElementTree.parse(project / "out" / "junit.xml").getroot().iter("failure")
    assert {told.get("type") for told in failures} == {"regression"}
    rows = list(csv.DictReader((project / "out" / "rows.csv").read_text().splitlines()))
    assert [(row["status"], row["retries"], row["source"]) for row in rows] == [("regression", "0", "virtual")]


def test_a_board_that_is_not_attached_means_exit_code_3(project: Path) -> None:
    done = cli(project, "ci", "--boards", "nucleo_none")
    assert done.returncode == 3, done.stderr
    assert "--boards nucleo_none: not attached; attach it, or say one of virtual, attached, all" in done.stderr


def test_baseline_that_does_not_exist_is_bad_usage(project: Path) -> None:
    done = ci(project, "--baseline", "nowhere.csv")
    assert (done.returncode, "no such file; make it with --update-baseline" in done.stderr) == (2, True)


def test_boards_command_lists_what_is_attached(project: Path) -> None:
    done = cli(project, "boards", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == {"probes", "wired_but_absent", "troubles", "supported"}
