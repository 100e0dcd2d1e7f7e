"""`pipeline init`: a folder of data, or none yet, becomes a small project with budgets that its network is pruned to.

Looks at the data (classes, kind, size of the pictures) and builds the network, own or usual, so that whatever is wrong
with either shows now. Writes only files that are not there yet; refuses a folder that has a pipeline.yaml.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from boards import load_board
from data import ImageSet, folder_data
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from stages.tools.new_project_text import ignored_files, network_file, project_file, project_readme, workflow

Kind = Literal["pictures", "sounds", "keywords"]
PROJECT_FILE = "pipeline.yaml"
_OWN_NETWORK = "my_nets:make"
_USUAL_NETWORK: Mapping[Kind, dict[str, Any]] = {
    "pictures": {"name": "resnet8"},
    "sounds": {"name": "dscnn", "width": 96, "blocks": 5},
    "keywords": {"name": "dscnn", "width": 96, "blocks": 5},
}
_SOUND_SHAPE = 49, 10, 1  # what prepare makes of a second of sound by default
_KEYWORD_CLASSES = 12
# Half of the weights and of the work: enough to see pruning, little enough to keep what a small data set can teach. The
# peak lies in the first layers, whose input cannot be pruned.
_SHARE = {"peak_bytes": 0.75, "size_bytes": 0.5, "macs": 0.5}
_SHARE_OF_BOARD = 0.5  # of its RAM and flash: the firmware needs some, and so does the user's program


@dataclass(frozen=True)
class Material:
    """What there is to learn from."""

    kind: Kind
    root: Path | None
    classes: int
    input_shape: tuple[int, int, int]
    told: str  # for people


def new_project(
    folder: Path, name: str, images: Path | None, sounds: Path | None, network: str | None, boards: Sequence[str]
) -> Answer:
    """Write the files of a project into `folder` and say what to do next."""
    if (folder / PROJECT_FILE).exists():
        raise ConfigError(
            f"{folder / PROJECT_FILE}: is there already and is never overwritten; work in another folder, or add "
            f"experiment {name!r} to it by hand"
        )
    material = _material(images, sounds)
    own = network or _OWN_NETWORK
    module, _, function = own.partition(":")
    kept, written = [], []

    def write(file: str, text: str) -> None:
        path = folder / file
        if path.exists():
            kept.append(file)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            written.append(file)

    if "." not in module and (network is None or not _is_importable(module)):
        write(f"{module}.py", network_file(function or "make"))
    chosen = {"module": own} if network else dict(_USUAL_NETWORK[material.kind])
    budget = _budget(chosen, material, boards)
    write(PROJECT_FILE, project_file(name, material.kind, material.root, material.told, chosen, own, budget, boards))
    write("README.md", project_readme(name, material.told, own))
    write(".gitignore", ignored_files())
    write(".github/workflows/pipeline.yml", workflow(name))
    lines = [f"{material.told}; network {own if network else chosen['name']}"]
    lines += [f"wrote {file}" for file in written] + [f"kept  {file}, which was there" for file in kept]
    lines.append(f"next: pipeline run {name}")
    return Answer("\n".join(lines), {"written": written, "kept": kept, "network": chosen, "budget": budget})


def _material(images: Path | None, sounds: Path | None) -> Material:
    root = images or sounds
    if images and sounds:
        raise ConfigError("--images, --sounds: found both, needed one of them; a project may get a second experiment")
    if root is None:
        told = f"spoken keywords that the pipeline makes itself, {_KEYWORD_CLASSES} classes"
        return Material("keywords", None, _KEYWORD_CLASSES, _SOUND_SHAPE, told)
    try:
        found = folder_data(root, image_px=None, copies=1, seed=0)
    except StageError as error:
        raise ConfigError(str(error)) from error
    are_pictures = isinstance(found, ImageSet)
    if are_pictures is (sounds is not None):
        held, option = ("pictures", "--images") if are_pictures else (".wav files", "--sounds")
        raise ConfigError(f"{root}: holds {held}; use {option} {root}")
    what = "pictures" if are_pictures else "sounds"
    told = f"{found.examples} {what} of {root.name}, {len(found.classes)} classes ({_listed(found.classes)})"
    if isinstance(found, ImageSet):
        shape = found.image_px, found.image_px, 3
        return Material("pictures", root, len(found.classes), shape, f"{told}, {found.image_px} pixels a side")
    return Material("sounds", root, len(found.classes), _SOUND_SHAPE, told)


def _budget(network: Mapping[str, Any], material: Material, boards: Sequence[str]) -> dict[str, int]:
    """What the network is pruned to: a share of what it takes, and less where the board has no room for that."""
    importlib.invalidate_caches()  # the network's file may be a minute old
    config = NetworkConfig(**network).for_data(material.input_shape, material.classes)
    unpruned = resources(graph_from_torch(build(config), config.input_shape), "classic")
    limits = {key: int(getattr(unpruned, key) * share) for key, share in _SHARE.items()}
    for board in map(load_board, boards):
        memories = board.memories
        room = {"peak_bytes": memories[board.arena_regions[1]].size, "size_bytes": memories["flash"].size}
        limits |= {key: min(limits[key], int(size * _SHARE_OF_BOARD)) for key, size in room.items()}
    return limits


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _listed(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 6 else f"{', '.join(classes[:5])}, ..."
