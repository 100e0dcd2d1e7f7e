"""What a person sees: lines of progress, tables, and what the doctor finds."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from pipeline.api import console
from pipeline.api.console import PlainReporter, reporter_for_stderr
from pipeline.cli.doctor import findings
from pipeline.cli.output import print_answer, print_table
from pipeline.engine.dag import Node
from pipeline.engine.tool_versions import program_version
from pipeline.stage import Answer, Target

MILL = Node("mill", Target("stove", "virtual"))


def test_plain_lines_tell_every_phase_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter_for_stderr() as reporter:
        assert isinstance(reporter, PlainReporter), "this is no terminal"
        reporter.started(MILL, "first run")
        reporter.progressed(MILL, {"event": "start", "total": 4, "unit": "round"})
        for note in ("", "dust", "dust", "dust 3"):
            reporter.progressed(MILL, {"event": "advance", "count": 1, "note": note})
        reporter.progressed(MILL, {"event": "start", "total": 2, "unit": "sieve"})
        reporter.progressed(MILL, {"event": "advance", "count": 2, "note": ""})
        reporter.finished(MILL, "ran", 1.25)
        reporter.finished(Node("sell"), "cached", 0.0)
    lines = capsys.readouterr().err.splitlines()
    assert all(re.match(r"\[ +0\.\d s\] ", line) for line in lines)
    assert [line.partition("] ")[2] for line in lines] == [
        "mill[stove]: running (first run)",
        "mill[stove]: round 1/4",
        "mill[stove]: round 4/4, dust 3",
        "mill[stove]: sieve 2/2",
        "mill[stove]: ran in 1.2 s",
        "sell: cached",
    ]


def test_progress_tells_what_is_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((0.0, 0.0, 6.0, 6.0, 7.0, 12.0, 12.0))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    reporter = PlainReporter()
    reporter.progressed(MILL, {"event": "start", "total": 10, "unit": "round"})
    for count in (2, 1, 1):  # after 6, 7 and 12 s: the second says nothing
        reporter.progressed(MILL, {"event": "advance", "count": count, "note": ""})
    assert capsys.readouterr().err.splitlines() == [
        "[   6.0 s] mill[stove]: round 2/10, 24 s left",
        "[  12.0 s] mill[stove]: round 4/10, 18 s left",
    ]


def test_what_a_resumed_step_had_already_says_nothing_of_its_pace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter((0.0, 0.0, 0.2, 0.2, 10.2, 10.2))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(console, "_PLAIN_EVERY_S", 0.0)
    reporter = PlainReporter()
    reporter.progressed(MILL, {"event": "start", "total": 100, "unit": "round"})
    reporter.progressed(MILL, {"event": "advance", "count": 90, "note": "resumed"})
    reporter.progressed(MILL, {"event": "advance", "count": 1, "note": ""})
    assert [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "mill[stove]: round 90/100, resumed",
        "mill[stove]: round 91/100, 92 s left",
    ]


def test_bars_name_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with reporter_for_stderr() as reporter:
        reporter.message("[a] message")
        reporter.started(MILL, "config.[x]: 1 -> 2")
        reporter.progressed(MILL, {"event": "start", "total": 4, "unit": "round"})
        reporter.progressed(MILL, {"event": "advance", "count": 1, "note": "[dust]"})
        reporter.finished(MILL, "ran", 1.25)
        reporter.finished(Node("sell"), "cached", 0.0)
    lines = [line.rstrip() for line in screen.getvalue().splitlines() if line.strip()]
    assert lines == ["[a] message", "▶ mill[stove] (config.[x]: 1 -> 2)", "✔ mill[stove] 1.2 s", "✔ sell cached"]


def test_the_whole_run_is_counted_and_nothing_is_counted_of_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PlainReporter()
    plain.planned(2)
    plain.finished(MILL, "ran", 1.25)
    plain.finished(Node("sell"), "cached", 0.0)
    plain.message("\x1b[31mred")
    lines = [line.partition("] ")[2] or line for line in capsys.readouterr().err.splitlines()]
    assert lines[:2] == ["mill[stove]: ran in 1.2 s, step 1 of 2", "sell: cached, step 2 of 2"]
    assert lines[2] == "\\x1b[31mred"
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    bars = console.RichReporter()
    bars.planned(2)
    bars.started(MILL, "first run")
    shown = [task.fields["count"] for task in bars.progress.tasks]
    bars.progressed(MILL, {"event": "start", "total": 4, "unit": "round"})
    bars.progressed(MILL, {"event": "advance", "count": 3, "note": ""})
    assert shown == ["step 0 of 2", ""]
    assert [task.fields["count"] for task in bars.progress.tasks] == ["step 0 of 2", "round 3/4"]
    bars.finished(MILL, "ran", 1.0)
    assert [task.fields["count"] for task in bars.progress.tasks] == ["step 1 of 2"]


def test_columns_of_a_table_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", "bb", ""), ("aaa", "b", "c")])
    print_table([])
    assert capsys.readouterr().out == "a    bb\naaa  b   c\n"


def test_an_answer_is_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer("text\n\n", {"n": 1})
    print_answer(answer, as_json=False)
    print_answer(answer, as_json=True)
    assert capsys.readouterr().out == 'text\n{\n  "n": 1\n}\n'


def found(root: Path, cache: Path) -> dict[str, tuple[str, str]]:
    return {item.check: (item.found, item.fix) for item in findings(root, cache, {}, {"sh": "apt-get install dash"})}


def test_the_doctor_says_what_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = dict.fromkeys((tmp_path, tmp_path / "cache"), 2_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9, 9, free[Path(folder)]))
    assert found(tmp_path, tmp_path / "cache")["disk space"] == ("2.0 GB free", "")
    (tmp_path / "cache").mkdir()
    free[tmp_path / "cache"] = 1_400_000_000
    assert found(tmp_path, tmp_path / "cache")["disk space"] == (
        "1.4 GB free",
        "free 0.6 GB, or run: pipeline gc --max-size 1GB",
    )
    assert found(tmp_path, tmp_path / "cache")["cache folder"] == (str(tmp_path / "cache"), "")
    python = ".".join(map(str, sys.version_info[:3]))
    assert found(tmp_path, tmp_path / "cache")["python"] == (python, "")


@pytest.mark.parametrize(("version", "fix"), [("0.11.0", "install probe 0.12 or newer"), ("0.12.0", ""), ("1.0", "")])
def test_the_doctor_wants_a_program_to_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fix: str
) -> None:
    program_version.cache_clear()
    program = tmp_path / "probe"
    program.write_text(f"#!/bin/sh\necho Open On-Chip Debugger {version} >&2\n")
    program.chmod(0o755)
    asked = {"probe": "0.12", "absent": "9.9"}
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    seen = {item.check: item.fix for item in findings(tmp_path, tmp_path, {}, {}, asked)}
    program_version.cache_clear()
    assert seen["program probe"] == fix
    assert "program absent" not in seen, "nobody needs it"


@pytest.mark.parametrize(
    ("ports", "allowed", "wanted"),
    [
        ([], True, "none; the virtual twin is used"),
        (["ttyACM0", "ttyUSB1"], True, "/dev/ttyACM0, /dev/ttyUSB1"),
        (["ttyACM0"], False, "no permission for /dev/ttyACM0"),
    ],
)
def test_the_doctor_looks_at_serial_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ports: list[str], allowed: bool, wanted: str
) -> None:
    listed = {f"{name[:6]}*": [Path("/dev") / name] for name in ports}
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: listed.get(pattern, []))
    monkeypatch.setattr(os, "access", lambda path, mode: allowed or mode == os.F_OK or "/dev/" not in str(path))
    if not allowed:
        monkeypatch.setattr(os, "stat", lambda path, **_: os.stat_result((0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))
    (finding,) = [item for item in findings(Path("/"), Path("/"), {}, {}) if item.check == "serial ports"]
    assert finding.found == wanted
    assert finding.fix == ("" if allowed else "sudo usermod -aG root $USER, then log in again")
