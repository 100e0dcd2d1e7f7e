"""Steps as a graph: what feeds what, and the sentence for each mistake."""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.engine.dag import Node, Step, build_dag, load_steps, section_models
from pipeline.errors import ConfigError
from pipeline.stage import Config, PerBoard, Stage, Target, stage

TARGETS = [Target("stove", "virtual"), Target("kiln", "hardware")]


def step(
    name: str, makes: str, takes: dict[str, Any] | None = None, needs: dict[str, Any] | None = None, **handed_in: Any
) -> Step:
    result = make_dataclass(name, [(field, Path) for field in makes.split()])
    parameters = ", ".join([*(takes or {}), "*", *handed_in, "out_dir"])
    scope: dict[str, Any] = {}
    exec(f"def run({parameters}): pass", scope)
    scope["run"].__annotations__ = {**(takes or {}), **handed_in, "out_dir": Path, "return": result}
    declared = stage(name, **(needs or {}))(scope["run"])
    assert isinstance(declared, Stage)
    return Step(declared, f"module_of_{name}")


def steps(*declared: Step) -> dict[str, Step]:
    return {each.stage.name: each for each in declared}


def test_steps_fan_out_over_targets_and_are_collected_again() -> None:
    dag = build_dag(
        steps(
            step("sell", "table", {"bread": PerBoard, "butter": Path | None}),
            step("bake", "bread", {"flour": Path}, target=Target),
            step("taste", "verdict", {"bread": Path}, board=str),
            step("mill", "flour"),
        ),
        TARGETS,
    )
    stove, kiln = (Node("bake", target) for target in TARGETS)
    assert dag.nodes[0] == Node("mill") and set(dag.nodes[1:3]) == {stove, kiln}
    assert dag.inputs[Node("sell")] == {"bread": (stove, kiln), "butter": ()}
    assert dag.inputs[Node("taste", TARGETS[1])] == {"bread": (kiln,)}
    assert dag.sources(stove) == {Node("mill")}
    assert dag.upstream_steps("sell") == {"bake", "mill"} and dag.upstream_steps("mill") == set()
    assert (str(kiln), str(Node("mill"))) == ("bake[kiln]", "mill")


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ([step("a", "x"), step("b", "x")], "steps.b: artifact 'x' is made by a already; rename one"),
        ([step("a", "x y"), step("b", "z", {"w": Path})], "steps.b: no step makes artifact 'w'; made are x, y, z"),
        ([step("a", "x", board=str), step("b", "y", {"x": Path})], "steps.b: 'x' has one file per board, needed a Per"),
        ([step("a", "x", {"y": Path}), step("b", "y", {"x": Path})], "steps: a circle of artifacts: "),
    ],
)
def test_steps_that_do_not_fit_together_are_named(declared: list[Step], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_dag(steps(*declared), TARGETS)


def test_a_twin_needs_programs_that_a_board_does_without() -> None:
    declared = step("a", "x", needs={"programs": ("gcc",), "twin_programs": ("qemu",)}, target=Target).stage
    needed = [declared.programs_for(target) for target in (None, *TARGETS)]
    assert needed == [("gcc",), ("gcc", "qemu"), ("gcc",)]
    assert declared.fans_out and not declared.touches_hardware


class One(Config):
    pass


class Other(Config):
    pass


def test_a_section_has_one_model() -> None:
    assert section_models(steps(step("a", "x", net=One), step("b", "y", net=One))) == {"net": One}
    with pytest.raises(ConfigError, match="steps.b: section 'net' is declared by another step with another model"):
        section_models(steps(step("a", "x", net=One), step("b", "y", net=Other)))


def test_a_module_that_declares_no_step_is_named() -> None:
    for module, sentence in (
        ("no_such_module", "steps.a: cannot import no_such_module"),
        ("json", "steps.a: json has no 'run', needed a function marked @stage"),
        ("subprocess", "steps.a: subprocess.run is not declared as @stage"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            load_steps({"a": module})
