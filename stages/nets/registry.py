"""From a name to a network, and from architecture.json back to one.

`architecture.json` holds everything that a network's shape depends on: backbone, its arguments, the channels that are
left in every channel group (numbered as in `stages.graph.groups`), input shape and classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from torch import nn

from pipeline.errors import StageError
from pipeline.stage import Config, read_json, write_json
from stages.nets.config import NetworkConfig
from stages.nets.dscnn import DsCnn


class Architecture(Config):
    """A network's shape: what architecture.json stores."""

    network: NetworkConfig
    widths: tuple[int, ...]  # channels per group
    input_shape: tuple[int, int, int]  # height, width, channels
    classes: int

    def build(self) -> nn.Module:
        return build(self.network, self.input_shape, self.classes, self.widths)


def full_widths(config: NetworkConfig) -> tuple[int, ...]:
    """Channels per group before pruning."""
    return (config.width,) * (config.blocks + 1)


def build(
    config: NetworkConfig,
    input_shape: tuple[int, int, int] = (49, 10, 1),
    classes: int = 12,
    widths: Sequence[int] | None = None,
) -> nn.Module:
    """The network with random weights from torch's generator; `widths` are the channels per group, if it is pruned."""
    expected = full_widths(config)
    found = tuple(widths) if widths is not None else expected
    if len(found) != len(expected) or min(found) < 1:
        raise StageError(
            f"{config.name}: widths {list(found)}, needed {len(expected)} positive ones, one per channel group"
        )
    return DsCnn(found, input_shape=input_shape, classes=classes)


def save_architecture(path: Path, architecture: Architecture) -> Path:
    """Write architecture.json."""
    return write_json(path, architecture.model_dump(mode="json"))


def read_architecture(path: Path) -> Architecture:
    """Read architecture.json."""
    try:
        return Architecture.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StageError(f"{path}: {where}: {first['msg'].lower()}; was it written by the prune step?") from error


def load_architecture(path: Path) -> nn.Module:
    """The network that architecture.json describes, with random weights."""
    return read_architecture(path).build()
