"""What the values of a sweep may look like, and which points they make."""

from __future__ import annotations

import itertools
import math

import pytest

from pipeline.errors import ConfigError
from pipeline.sweeps.axes import Choices, Span, axis_of, grid, sample, whole_numbers


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("1,2,3", ("1", "2", "3")),
        ("0..4", ("0", "1", "2", "3", "4")),
        ("-1..1", ("-1", "0", "1")),
        ("0.1..0.5..0.1", ("0.1", "0.2", "0.3", "0.4", "0.5")),
        ("0..1..0.3", ("0.0", "0.3", "0.6", "0.9")),
        ("7,0..2", ("7", "0", "1", "2")),
        ("2,2,1", ("2", "1")),
        ("[1, 2],[3]", ("[1, 2]", "[3]")),
        ('"a,b",c', ('"a,b"', "c")),
        ("../data", ("../data",)),
        ("51.7KB,60KB", ("51.7KB", "60KB")),
        ([1, 2.5, "x", [1, 2], True], ("1", "2.5", "x", "[1, 2]", "true")),
        (3, ("3",)),
    ],
)
def test_values_stay_the_text_that_set_takes(given: object, values: tuple[str, ...]) -> None:
    assert axis_of("--set a.b", given) == Choices(values)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "needed values such as"),
        ("1,,2", "needed values such as"),
        ([], "needed values such as"),
        ("4..0", "low first"),
        ("0..4..0", "pace above zero"),
        ("0..1e9", "needed at most"),
        ("log(0..1)", "above zero"),
        ("whole(0.5..2)", "whole"),
        ("cubic(0..1)", "needed uniform"),
        ("uniform(a..b)", "needed uniform"),
    ],
)
def test_what_is_no_list_of_values_is_named(given: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^--set a.b: .*{sentence}"):
        axis_of("--set a.b", given)


def test_seeds_are_whole_numbers() -> None:
    assert whole_numbers("--seeds", "0..2,7") == (0, 1, 2, 7)
    assert whole_numbers("--seeds", [3, 1]) == (3, 1)
    for given in ("0.5", "a", "uniform(0..4)"):
        with pytest.raises(ConfigError, match="--seeds: found .* needed whole numbers"):
            whole_numbers("--seeds", given)


def test_a_grid_is_every_combination() -> None:
    axes = [Choices(("a", "b")), Choices(("1", "2", "3")), Choices(("x",))]
    assert list(grid("sweep", axes)) == list(itertools.product("ab", "123", "x"))
    assert list(grid("sweep", [])) == [()]
    with pytest.raises(ConfigError, match="draw some with --sample N"):
        grid("sweep", [Choices(tuple(map(str, range(1000))))] * 2)
    with pytest.raises(ConfigError, match="a span of numbers has no grid"):
        grid("sweep", [Span(0, 1, "uniform")])


def test_a_sample_is_drawn_without_repetition_and_again_the_same() -> None:
    axes = [Choices(tuple("abcdefgh")), Choices(tuple("12345678"))]
    drawn = sample("sweep", axes, 20, 3)
    assert drawn == sample("sweep", axes, 20, 3) != sample("sweep", axes, 20, 4)
    assert len(set(drawn)) == 20 and set(drawn) <= set(itertools.product("abcdefgh", "12345678"))
    assert len(sample("sweep", axes, 100, 0)) == 64
    with pytest.raises(ConfigError, match="only 3 different combinations"):
        sample("sweep", [Span(1, 3, "whole")], 4, 0)


@pytest.mark.parametrize("kind", ["uniform", "log"])
def test_spans_are_drawn_from_evenly(kind: str) -> None:
    axis = axis_of("--set a.b", f"{kind}(1e-4..1e-1)")
    drawn = [float(value) for (value,) in sample("sweep", [axis], 400, 0)]
    assert min(drawn) >= 1e-4 and max(drawn) <= 1e-1
    middle = math.sqrt(1e-4 * 1e-1) if kind == "log" else (1e-4 + 1e-1) / 2
    assert 150 < sum(value < middle for value in drawn) < 250
