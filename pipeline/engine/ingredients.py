"""What a step's result depends on, as one flat mapping; its digest is the cache key, its differences are the reasons.

step, board, source, experiment   what is asked for
code.<module>                     digest of each module of ours that the step imports
file.<path>                       digest of each further source the step names
config.<key>, <section>.<key>     the configuration it reads
outside.<section>.<key>           digest of what the configuration points at outside the project
input.<artifact>[.<board>]        content digest of each artifact it reads
version.<tool>                    Python, and the packages and programs it declares
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import Experiment
from pipeline.engine.cache import Entry
from pipeline.engine.dag import Dag, Node
from pipeline.engine.sources import SourceTree
from pipeline.engine.tool_versions import package_version
from pipeline.errors import ConfigError

Ingredients = dict[str, Any]
ABSENT = "not installed"


def ingredients_of(
    node: Node, dag: Dag, experiment: Experiment, code: SourceTree, entries: Mapping[Node, Entry]
) -> Ingredients:
    """All ingredients of a node whose sources are in `entries`."""
    stage = dag.stage(node)
    if node not in code.fixed:
        code.fixed[node] = _fixed(node, dag, code)
    found: Ingredients = dict(code.fixed[node])
    if "experiment" in stage.handed_in:
        found["experiment"] = experiment.name
    for section in stage.sections:
        for name in experiment.sections[section].source_modules:
            if code.file_of(name) is not None:
                found |= {f"code.{module}": digest for module, digest in code.digests(name).items()}
        prefix = "config" if section == stage.name else section
        for key, value in experiment.flat_sections[section].items():
            found[f"{prefix}.{key}"] = value
        for key, digest in experiment.sections[section].outside().items():
            found[f"outside.{section}.{key}"] = digest
    for artifact, makers in dag.inputs[node].items():
        for maker in makers:
            suffix = f".{maker.target.board}" if stage.artifacts[artifact] and maker.target else ""
            found[f"input.{artifact}{suffix}"] = entries[maker].digest(artifact)
    return found


def _fixed(node: Node, dag: Dag, code: SourceTree) -> Ingredients:
    """Those that are the same for every experiment and setting."""
    stage = dag.stage(node)
    found: Ingredients = {"step": node.step, "version.python": platform.python_version()}
    if node.target and stage.handed_in & {"board", "target"}:
        found["board"] = node.target.board
    if node.target and "target" in stage.handed_in:
        found["source"] = node.target.source
    for module, digest in code.digests(dag.steps[node.step].module).items():
        found[f"code.{module}"] = digest
    for name, path in extra_sources(node, stage.sources, code.roots).items():
        found[f"file.{name}"] = code.tree_digest(path)
    for package in stage.packages:
        found[f"version.{package}"] = package_version(package) or ABSENT
    for program in (*stage.programs_for(node.target), *stage.optional_programs):
        found[f"version.{program}"] = code.version_of(program) or ABSENT
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """'config.epochs: 4 -> 3' for each ingredient that is not the same; what the user set comes first."""

    def rank(name: str) -> tuple[int, str]:
        kind = name.partition(".")[0]
        return ({"code": 1, "file": 1, "version": 2, "input": 3}.get(kind, 0), name)

    changed = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return [f"{name}: {_shown(old, name)} -> {_shown(new, name)}" for name in sorted(changed, key=rank)]


def _shown(ingredients: Mapping[str, Any], name: str) -> str:
    value = ingredients.get(name, "(none)")
    is_digest = name.startswith(("code.", "file.", "input.")) and len(str(value)) == 64
    return str(value)[:12] if is_digest else str(value)


def extra_sources(node: Node, patterns: tuple[str, ...], roots: tuple[Path, ...]) -> dict[str, Path]:
    """The files and folders that a step names beside its code."""
    sources = {}
    for pattern in patterns:
        name = pattern.format(board=node.target.board if node.target else "")
        found = [root / name for root in roots if (root / name).exists()]
        if not found:
            raise ConfigError(
                f"{node}: {name}: no such file or folder, needed as a source of the step; is the board's name right?"
            )
        sources[name] = found[0]
    return sources
