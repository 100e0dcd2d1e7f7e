"""Comparison with a baseline: directions, tolerances, identities."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ci.baseline import (
    DEFAULT_TOLERANCES,
    Tolerance,
    compared,
    parse_tolerance,
    read_baseline,
    write_baseline,
)
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


@pytest.mark.parametrize(
    ("now", "before", "sentence"),
    [
        ("", "20", "latency_ms: none, baseline 20"),
        ("20", "", "latency_ms: 20, baseline none"),
        ("2", "0", "latency_ms: 2, baseline 0 (+2, tolerance 5 %)"),
        ("1234567", "2.5", "latency_ms: 1,234,567, baseline 2.5 (+49382580.00 %, tolerance 5 %)"),
    ],
)
def test_sentence_of_a_figure_that_stands_on_one_side_or_has_no_ratio(now: str, before: str, sentence: str) -> None:
    found = compared({**BEFORE, "latency_ms": now}, {**BEFORE, "latency_ms": before}, TOLERANCES)
    assert str(found[0]) == sentence


def test_tolerance_counts_from_the_size_of_the_baseline_whatever_its_sign() -> None:
    limit = Tolerance(relative=0.1, absolute=0.5)
    assert [limit.allows(worse_by, -20.0) for worse_by in (2.5, 2.51)] == [True, False]
    assert (str(limit), str(Tolerance(absolute=0.01))) == ("10 %", "0.01")


def test_default_tolerances_are_those_of_the_readme() -> None:
    hundredths = {name: 100 * (limit.relative or limit.absolute) for name, limit in DEFAULT_TOLERANCES.items()}
    assert {name for name, value in hundredths.items() if value == 2} == {
        *("instructions", "cycles_modelled", "latency_ms_modelled", "energy_mj_modelled")
    }
    assert {name for name, value in hundredths.items() if value == 5} == {"latency_ms", "energy_mj"}
    assert [name for name, limit in DEFAULT_TOLERANCES.items() if limit.absolute] == ["accuracy_int8"]


def test_column_that_stands_on_neither_side_is_not_compared_and_words_are_refused() -> None:
    row = {**BEFORE, "latency_ms": ""}
    assert [one.column for one in compared(row, row, TOLERANCES)] == ["accuracy_int8"]
    with pytest.raises(ConfigError, match="baseline: latency_ms is 'fast', needed a number or nothing"):
        compared({**BEFORE, "latency_ms": "fast"}, BEFORE, TOLERANCES)


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


@pytest.mark.parametrize("text", ["-1%", "many", True, False, "nan", "inf"])
def test_other_tolerances_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="needed a tolerance such as 5% or 0.01"):
        parse_tolerance(text)


def test_baseline_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "baseline.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="not readable as a baseline"):
        read_baseline(file)
