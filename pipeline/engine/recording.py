"""What a run knows of itself for its record (configuration, boards, commit, machine), and how its results learn it."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import Experiment, Project
from pipeline.digest import value_digest
from pipeline.engine.cache import Entry
from pipeline.engine.dag import Node
from pipeline.engine.tool_versions import package_version
from pipeline.records.provenance import git_state, machine, seeds
from pipeline.records.store import RunStore

_PACKAGE = "tinyml-pipeline"
_VERSION = "version."  # before the name of a tool among the ingredients


def run_store(project: Project) -> RunStore:
    """The runs of a project."""
    return RunStore(project.root / "runs")


def surroundings(project: Project) -> dict[str, Any]:
    """The commit of the project and the machine."""
    return {"git": git_state(project.root), "machine": machine()}


def run_facts(
    experiment: Experiment, nodes: Sequence[Node], words: Sequence[str], overrides: Sequence[str]
) -> dict[str, Any]:
    """Before a run begins; `words` are the command without its boards and overrides."""
    sections = {name: section.model_dump(mode="json") for name, section in experiment.sections.items()}
    targets = list(dict.fromkeys(node.target for node in nodes if node.target))
    sources = {target.source for target in targets}
    chosen = [] if [target.board for target in targets] == list(experiment.boards) else targets
    command = [
        *("pipeline", *words),
        *(word for target in chosen for word in ("--board", target.board)),
        *(["--virtual"] if sources == {"virtual"} else []),
        *(word for override in overrides for word in ("--set", override)),
    ]
    return {
        "experiment": experiment.name,
        "quick": experiment.quick,
        "command": shlex.join(command),
        "overrides": list(overrides),
        "config": sections,
        "config_digest": value_digest(sections),
        "seed": seeds(sections),
        "boards": [{"board": target.board, "source": target.source} for target in targets],
        "source": sources.pop() if len(sources) == 1 else None,
        "versions": {_PACKAGE: package_version(_PACKAGE)},
    }


def tool_versions(ingredients: Mapping[str, Any]) -> dict[str, str]:
    """Of Python, and of what the step declares."""
    return {name.removeprefix(_VERSION): value for name, value in ingredients.items() if name.startswith(_VERSION)}


def completed(project: Project, entry: Entry, facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Files of the results to which the run itself is added: its id, its commit, when it was. Path -> bytes.

    The step that makes them knows none of it, so that it can be served from the cache.
    """
    if project.show.get("rows", "") not in entry.outputs or not project.has_tool("complete"):
        return {}
    paths = {artifact: entry.path(artifact) for artifact in entry.outputs}
    made: Mapping[str, bytes] = project.function("complete")(paths, facts, project.root)
    return {entry.outputs[artifact]: content for artifact, content in made.items()}


def result_rows(project: Project, entry: Entry, made: Mapping[str, bytes]) -> list[dict[str, str]]:
    """The rows of the results, as the run's folder holds them; none from another step than theirs."""
    rows = project.show.get("rows", "")
    if rows not in entry.outputs:
        return []
    path = entry.outputs[rows]
    text = made[path].decode() if path in made else entry.path(rows).read_text()
    return list(csv.DictReader(io.StringIO(text)))
