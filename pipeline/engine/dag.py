"""The steps of an experiment as a graph: which step feeds which, fanned out over the targets.

An edge is an artifact: a step's positional parameter is the field of that name in another step's result. A step that
takes `board` or `target` has one node per target; every other step has a single node.
"""

from __future__ import annotations

import functools
import graphlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.stage import Config, Stage, Target


@dataclass(frozen=True)
class Step:
    """A declared stage and the module that holds it."""

    stage: Stage
    module: str


@dataclass(frozen=True)
class Node:
    """One execution of a step: the whole of it, or its share for one target."""

    step: str
    target: Target | None = None

    def __str__(self) -> str:
        return f"{self.step}[{self.target.board}]" if self.target else self.step

    @property
    def folder(self) -> str:
        """Where its files lie in the folder of a run."""
        return f"{self.step}-{self.target.board}" if self.target else self.step


@dataclass(frozen=True)
class Dag:
    """Nodes in an order that respects the edges."""

    steps: Mapping[str, Step]
    nodes: tuple[Node, ...]
    inputs: Mapping[Node, Mapping[str, tuple[Node, ...]]]  # node -> artifact -> who makes it

    def stage(self, node: Node) -> Stage:
        return self.steps[node.step].stage

    def sources(self, node: Node) -> frozenset[Node]:
        return self._sources[node]

    @functools.cached_property
    def _sources(self) -> Mapping[Node, frozenset[Node]]:
        return {node: frozenset().union(*makers.values()) for node, makers in self.inputs.items()}

    def step_named(self, name: str) -> str:
        if name not in self.steps:
            raise ConfigError(f"{name}: no such step; known are {', '.join(self.steps)}")
        return name

    def upstream_steps(self, step: str) -> set[str]:
        """Every step that `step` depends on, directly or not."""
        above = {
            artifact_source.step for node in self.nodes if node.step == step for artifact_source in self.sources(node)
        }
        return above.union(*(self.upstream_steps(source) for source in above)) if above else set()


def load_steps(modules: Mapping[str, str]) -> dict[str, Step]:
    """Import the light `stage.py` of each step and check that the declarations fit together."""
    steps: dict[str, Step] = {}
    for name, module in modules.items():
        try:
            declared = importlib.import_module(module).run
        except ModuleNotFoundError as error:
            raise ConfigError(f"steps.{name}: cannot import {module} ({error}); check the dotted name") from error
        except AttributeError as error:
            raise ConfigError(f"steps.{name}: {module} has no 'run', needed a function marked @stage") from error
        if not isinstance(declared, Stage) or declared.name != name:
            raise ConfigError(f"steps.{name}: {module}.run is not declared as @stage({name!r})")
        steps[name] = Step(declared, module)
    return steps


def section_models(steps: Mapping[str, Step]) -> dict[str, type[Config]]:
    """Configuration section -> model, over all steps."""
    models: dict[str, type[Config]] = {}
    for name, step in steps.items():
        for section, model in step.stage.sections.items():
            if models.setdefault(section, model) is not model:
                raise ConfigError(f"steps.{name}: section '{section}' is declared by another step with another model")
    return models


def build_dag(steps: Mapping[str, Step], targets: Sequence[Target]) -> Dag:
    maker_of = _makers(steps)
    order = _step_order(steps, maker_of)
    nodes_of = {
        name: tuple(Node(name, target) for target in targets) if steps[name].stage.fans_out else (Node(name),)
        for name in order
    }
    inputs = {
        node: {
            artifact: _feeding(node, nodes_of[maker_of[artifact]], collects) if artifact in maker_of else ()
            for artifact, collects in steps[name].stage.artifacts.items()
        }
        for name in order
        for node in nodes_of[name]
    }
    return Dag({name: steps[name] for name in order}, tuple(node for name in order for node in nodes_of[name]), inputs)


def _feeding(node: Node, makers: Iterable[Node], collects: bool) -> tuple[Node, ...]:
    """The makers whose artifact `node` reads: all of them when it collects, else the one of its own target."""
    return tuple(maker for maker in makers if collects or maker.target is None or maker.target == node.target)


def _makers(steps: Mapping[str, Step]) -> dict[str, str]:
    maker_of: dict[str, str] = {}
    for name, step in steps.items():
        for artifact in step.stage.outputs:
            if artifact in maker_of:
                raise ConfigError(
                    f"steps.{name}: artifact '{artifact}' is made by {maker_of[artifact]} already; rename one"
                )
            maker_of[artifact] = name
    for name, step in steps.items():
        for artifact, collects in step.stage.artifacts.items():
            if artifact not in maker_of and artifact in step.stage.optional:
                continue
            if artifact not in maker_of:
                raise ConfigError(f"steps.{name}: no step makes artifact '{artifact}'; made are {', '.join(maker_of)}")
            if steps[maker_of[artifact]].stage.fans_out and not step.stage.fans_out and not collects:
                raise ConfigError(f"steps.{name}: '{artifact}' has one file per board, needed a PerBoard parameter")
    return maker_of


def _step_order(steps: Mapping[str, Step], maker_of: Mapping[str, str]) -> tuple[str, ...]:
    edges = {
        name: {maker_of[artifact] for artifact in step.stage.artifacts if artifact in maker_of}
        for name, step in steps.items()
    }
    try:
        return tuple(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as error:
        raise ConfigError(f"steps: a circle of artifacts: {' -> '.join(error.args[1])}") from error
