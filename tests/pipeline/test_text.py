"""Whatever somebody called an experiment, a class, a layer or a file: it appears as text and does nothing else."""

from __future__ import annotations

import csv
import io

import pandas
import pytest

from pipeline.text import aligned, csv_cell, csv_text, markdown_table, shown

HOSTILE = [
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3+cmd",
    "@SUM(A1)",
    "\x1b[2J\x1b]0;owned\x07",
    'a,"b"\nc',
    "\u202etxt.exe",
    "<script>alert(1)</script>",
    "a|b",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_one_cell_of_text_in_csv_and_no_formula(name: str) -> None:
    text = csv_text([{"layer": name, "n": 3}], ["layer", "n"])
    assert all(character.isprintable() or character == "\n" for character in text)
    ((_, _), (cell, count)) = csv.reader(io.StringIO(text))
    assert cell == csv_cell(name) and cell[0] not in "=+-@\t\r" and count == "3"
    assert pandas.read_csv(io.StringIO(text)).shape == (1, 2)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (True, "true"),
        (-0.25, "-0.25"),
        ("-0.25", "-0.25"),
        (1 / 3, "0.333333333"),
        (-7, "-7"),
        ("-x", "'-x"),
    ],
)
def test_numbers_stay_numbers_in_csv(value: object, cell: str) -> None:
    assert csv_cell(value) == cell


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_moves_no_cursor_and_opens_no_column(name: str) -> None:
    assert shown(name).isprintable()
    assert len(aligned([["layer", "n"], [name, "3"]])) == 2
    head, ruler, row = markdown_table([["layer", "n"], [name, "3"]]).splitlines()
    assert row.replace(r"\|", "").count("|") == head.count("|") == ruler.count("|") == 3
    assert "<" not in row.replace(r"\<", "")
