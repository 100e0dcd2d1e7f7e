"""Comparison with a baseline: directions, tolerances, identities."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ci.baseline import Tolerance, compared, parse_tolerance, read_baseline, write_baseline
from pipeline.errors import ConfigError

TOLERANCES = {"latency_ms": Tolerance(relative=0.05), "accuracy_int8": Tolerance(absolute=0.01)}
BEFORE = {"experiment": "kws", "board": "b", "source": "hardware", "latency_ms": "20", "accuracy_int8": "0.95"}


@pytest.mark.parametrize(
    ("column", "value", "verdict"),
    [
        ("latency_ms", "20", "same"),
        ("latency_ms", "21", "same"),
        ("latency_ms", "21.01", "regression"),
        ("latency_ms", "18.9", "improved"),
        ("latency_ms", "", "lost"),
        ("accuracy_int8", "0.94", "same"),
        ("accuracy_int8", "0.9399", "regression"),
        ("accuracy_int8", "0.97", "improved"),
    ],
)
def test_verdict_follows_direction_and_tolerance(column: str, value: str, verdict: str) -> None:
    found = {one.column: one.verdict for one in compared({**BEFORE, column: value}, BEFORE, TOLERANCES)}
    assert found[column] == verdict


def test_sentence_shows_both_values_and_the_change() -> None:
    worse = compared({**BEFORE, "latency_ms": "25"}, BEFORE, TOLERANCES)[0]
    assert str(worse) == "latency_ms: 25, baseline 20 (+25.00 %, tolerance 5 %)"


def test_row_without_a_baseline_is_new() -> None:
    assert {one.verdict for one in compared(BEFORE, None, TOLERANCES)} == {"new"}


def test_updating_replaces_its_own_rows_and_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "baseline.csv"
    twin = {**BEFORE, "source": "virtual", "latency_ms": ""}
    write_baseline(file, [BEFORE, twin], list(TOLERANCES))
    write_baseline(file, [{**BEFORE, "latency_ms": "19"}], list(TOLERANCES))
    rows = read_baseline(file)
    assert rows[("kws", "b", "hardware")]["latency_ms"] == "19"
    assert rows[("kws", "b", "virtual")] == twin
    assert [path.name for path in file.parent.iterdir()] == ["baseline.csv"]


@pytest.mark.parametrize(("text", "wanted"), [("5%", Tolerance(relative=0.05)), (0.01, Tolerance(absolute=0.01))])
def test_tolerances_are_relative_or_absolute(text: object, wanted: Tolerance) -> None:
    assert parse_tolerance(text) == wanted


@pytest.mark.parametrize("text", ["-1%", "many", True, "nan", "inf"])
def test_other_tolerances_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="needed a tolerance such as 5% or 0.01"):
        parse_tolerance(text)


def test_baseline_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "baseline.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="not readable as a baseline"):
        read_baseline(file)
