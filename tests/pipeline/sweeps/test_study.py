"""Studies of the toy project: factors become points, the tool hears what came of them, quick changes what it says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pipeline.config import load_project
from pipeline.errors import ConfigError
from pipeline.sweeps.study import study_spec
from tests.pipeline.conftest import ToyProject

STUDY = """
studies:
  stones:
    title: Which stone
    question: Does the stone matter?
    experiment: bread
    until: mill
    set: {mill.pause_s: 0}
    vary:
      stone: {soft: {mill.rounds: 1}, hard: {mill.rounds: 3, grow.grains: 2}}
      mill.seed: [3, 4]
    quick: {vary: {mill.seed: [5]}, set: {grow.grains: 1}}
    show: {columns: [flour]}
"""
TOOL = """
from pipeline.stage import Answer

def study(about, show, points, out):
    lines = [f"{point['levels']} {point['state']} {(point['folder'] / 'mill' / 'flour.txt').read_text()}"
             for point in points if point["folder"]]
    return Answer("\\n".join([about["title"], *lines]), {"about": about, "show": show, "told": lines})
"""


@pytest.fixture
def toy(toy: ToyProject) -> ToyProject:
    toy.edit("toy_mill.py", "    pause_s: float = 0.0\n", "    pause_s: float = 0.0\n    seed: int = 0\n")
    toy.edit("toy_mill.py", '"dust": 1}', '"dust": 1 + config.seed}')
    toy.edit("pipeline.yaml", "defaults:\n", "tools: {study: toy_tool:study}\ndefaults:\n")
    (toy.root / "toy_tool.py").write_text(TOOL)
    with (toy.root / "pipeline.yaml").open("a") as file:
        file.write(STUDY)
    return toy


def test_a_study_runs_every_combination_up_to_its_last_step_and_hands_it_to_its_tool(toy: ToyProject) -> None:
    told = json.loads(toy.run("study", "stones", "--virtual", "--json").stdout)
    assert sorted(toy.executed()) == ["grow", "grow", *["mill"] * 4], "no step beyond mill, grow once for each setting"
    assert told["about"] == {
        "name": "stones",
        "title": "Which stone",
        "question": "Does the stone matter?",
        "quick": False,
    }
    assert [line.rpartition("done ")[0] for line in told["told"]] == [
        f"{{'stone': '{stone}', 'mill.seed': '{seed}'}} " for stone in ("soft", "hard") for seed in "34"
    ]
    assert told["told"][0].endswith("6 130") and told["told"][2].endswith(f"2 {((4 * 31 + 2) * 31 + 2) * 31 + 2}")
    rows = list(csv.DictReader((toy.root / "sweeps" / "study-stones" / "results.csv").read_text().splitlines()))
    assert [(row["stone"], row["mill.seed"], row["status"]) for row in rows][2] == ("hard", "3", "done")

    again = toy.run("study", "stones", "--virtual")
    assert (toy.executed(), "4 of them up to date" in again.stderr) == ([], True)
    quick = json.loads(toy.run("study", "stones", "--quick", "--virtual", "--json").stdout)
    assert [line.partition(" done ")[2] for line in quick["told"]] == ["1 187", f"2 {((6 * 31 + 2) * 31 + 2) * 31 + 2}"]


def test_what_has_ended_so_far_is_tabulated_without_a_step(toy: ToyProject) -> None:
    assert toy.run("study", "stones", "--virtual", "--so-far").stdout == "Which stone\n"
    toy.run("study", "stones", "--virtual", "--set", "mill.fail=true", check=1)
    assert toy.executed().count("mill") == 4
    assert "Which stone" in toy.run("study", "--virtual").stdout, "without a name: the list"
    assert toy.executed() == []


def test_settings_of_the_user_and_another_experiment_apply_to_all_points(toy: ToyProject) -> None:
    toy.edit("pipeline.yaml", "quick:\n  grow", "  cake: {grow: {grains: 4}}\nquick:\n  grow")
    spec = study_spec(load_project(toy.root / "pipeline.yaml"), "stones", settings=["bake.heat=9"], experiment="cake")
    points = spec.points()
    assert {point.experiment for point in points} == {"cake"} and spec.name == "study-stones-cake"
    assert all(("bake.heat", "9") in point.settings for point in points)
    assert str(points[0]) == "cake stone=soft mill.seed=3"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("soft: {mill.rounds: 1}", "soft: 3", "studies.stones.vary.stone.soft: found 3, needed settings"),
        ("[3, 4]", "uniform(0..1)", "vary.mill.seed: found a span of numbers, needed a list"),
        ("until: mill", "until: mil", "mil: no such step; known are grow, mill"),
        ("    title:", "    titel:", "studies.stones.titel: unknown key; did you mean 'title'?"),
        ("soft: {mill.rounds: 1}", "soft: {mill.round: 1}", "mill.round: unknown key; did you mean 'rounds'?"),
    ],
)
def test_mistakes_in_an_entry_are_named_before_anything_runs(
    toy: ToyProject, old: str, new: str, sentence: str
) -> None:
    toy.edit("pipeline.yaml", old, new)
    assert sentence in toy.run("study", "stones", "--virtual", check=2).stderr
    assert toy.executed() == []


def test_an_unknown_study_names_those_that_are_known(toy: ToyProject) -> None:
    with pytest.raises(ConfigError, match="studies.bricks: no such study; known are stones"):
        study_spec(load_project(Path(toy.root / "pipeline.yaml")), "bricks")
