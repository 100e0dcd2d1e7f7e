"""What a step asks of a node: its entry below `resources` of pipeline.yaml, and the board that it works on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.config import Project, load_section
from pipeline.engine.worker import Job
from pipeline.errors import ConfigError
from pipeline.stage import Config, Stage, Target
from pipeline.units import Bytes


class StepResources(Config):
    """One step. They are no part of its key: where it runs does not change what it yields."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: Bytes = 0
    custom: dict[str, float] = {}  # whatever nodes were started with: `ray start --resources`


@dataclass(frozen=True)
class Needs:
    """What a node must have free; amounts by Ray's names, such as CPU."""

    amounts: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{name} {amount:g}" for name, amount in self.amounts.items()) or "nothing"

    def options(self) -> dict[str, Any]:
        """As arguments of a task."""
        own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        plain = {argument: self.amounts[name] for name, argument in own.items() if name in self.amounts}
        return {"num_cpus": 0, **plain, "resources": {k: v for k, v in self.amounts.items() if k not in own}}

    def met_by(self, offered: Mapping[str, float]) -> bool:
        return all(offered.get(name, 0.0) >= amount for name, amount in self.amounts.items())


def board_resource(target: Target) -> str:
    """A real board and its twin are different things."""
    return f"{'board' if target.source == 'hardware' else 'twin'}:{target.board}"


def probe_resource(serial: str) -> str:
    return f"probe:{serial.upper()}"


def declared_resources(project: Project) -> dict[str, StepResources]:
    """Checked; a step that does not exist is refused."""
    known = {**project.steps, **project.model_steps}
    found: dict[str, StepResources] = {}
    for step in project.document.below("resources").values:
        if step not in known:
            raise ConfigError(
                f"{project.document.origins[('resources', step)]}: no such step; known are {', '.join(known)}"
            )
        one = load_section(project, f"resources.{step}", StepResources)
        assert isinstance(one, StepResources)
        found[step] = one
    return found


def needs_of(job: Job, declared: StepResources, probe: str, offered: Callable[[], Collection[str]]) -> Needs:
    """A step on a board needs that board, which is its host's; a twin runs anywhere unless somebody offers one."""
    stage: Stage = importlib.import_module(job.module).run
    amounts = {"GPU": declared.gpus, "memory": float(declared.memory), **declared.custom}
    board = board_resource(job.target) if stage.touches_hardware and job.target is not None else None
    if board is None or (board.startswith("twin:") and board not in offered()):
        amounts["CPU"] = declared.cpus
    else:
        amounts |= {board: 1.0, **({probe_resource(probe): 1.0} if probe and board.startswith("board:") else {})}
    return Needs({name: amount for name, amount in amounts.items() if amount})
