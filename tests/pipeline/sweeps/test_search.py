"""A search of the toy project with Optuna: it finds the best, goes on after a kill, and says what is missing."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import signal

import pytest

from tests.pipeline.conftest import ToyProject

needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="pip install 'tinyml-pipeline[search]'"
)
QUESTION = ("sweep", "bread", "--set", "sell.price=whole(1..5)", "--objective", "price:max", "--name", "dear")


def rows(toy: ToyProject) -> list[dict[str, str]]:
    return list(csv.DictReader((toy.root / "sweeps" / "dear" / "results.csv").read_text().splitlines()))


@needs_optuna
def test_a_search_finds_the_best_and_is_not_repeated(toy: ToyProject) -> None:
    done = json.loads(toy.run(*QUESTION, "--search", "6", "-j", "3", "--json").stdout)
    prices = [int(row["price"]) for row in rows(toy)]
    assert len(prices) == 12 and done["best"][0] == {"settings": {"sell.price": str(max(prices))}, "price": max(prices)}
    toy.executed()
    again = toy.run(*QUESTION, "--search", "6")
    assert (toy.executed(), f"best: sell.price={max(prices)}: price {max(prices)}" in again.stdout) == ([], True)
    toy.run(*QUESTION, "--search", "7")
    assert len(rows(toy)) == 14, "one more trial on top of the six"


@needs_optuna
def test_a_killed_search_asks_its_running_trials_again(toy: ToyProject) -> None:
    question = (*QUESTION, "--set", "mill.pause_s=0.4", "--search", "2", "-j", "1")
    with toy.started(*question, until="search: trial 1") as process:
        os.kill(process.pid, signal.SIGKILL)
    toy.run(*question)
    assert [row["status"] for row in rows(toy)] == ["done"] * 4


@needs_optuna
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--objective", "price"], "--objective price: needed a column and max or min"),
        (["--objective", "weight:min"], "--objective weight: the results have no such figure; they have board, price"),
        ([], "--search: needed --set with values to choose from"),
    ],
)
def test_mistakes_of_a_search_are_named(toy: ToyProject, arguments: list[str], sentence: str) -> None:
    done = toy.run("sweep", "bread", "--set", "sell.price=1,2", "--search", "1", *arguments, check=2)
    assert sentence in done.stderr


def test_without_optuna_the_extra_is_named(toy: ToyProject) -> None:
    (toy.root / "optuna.py").write_text("raise ImportError('none here')\n")
    done = toy.run(*QUESTION, "--search", "2", check=2)
    assert "Optuna is not installed" in done.stderr and "pip install 'tinyml-pipeline[search]'" in done.stderr
