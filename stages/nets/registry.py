"""From a name to a network, and from architecture.json back to one.

`architecture.json` holds everything that a network's shape depends on: the backbone with its arguments, input shape
and classes, and the channels that are left in every channel group (numbered as in `stages.graph.groups`). The full
network is built and narrowed to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from pipeline.errors import StageError
from pipeline.stage import Config, read_json, write_json
from stages.nets.backbones.broadcast_kws import BroadcastKws
from stages.nets.backbones.dscnn import DsCnn
from stages.nets.backbones.efficientnet import EfficientNetB0
from stages.nets.backbones.etinynet import EtinyNet
from stages.nets.backbones.inverted_cifar import InvertedCifar
from stages.nets.backbones.mcunet import McuNet
from stages.nets.backbones.mobilenet_v1 import MobileNetV1
from stages.nets.backbones.mobilenet_v2 import MobileNetV2
from stages.nets.backbones.res_kws import ResKws
from stages.nets.backbones.resnet import ResNet
from stages.nets.backbones.vgg import Vgg16
from stages.nets.channels import find_channels
from stages.nets.config import NetworkConfig
from stages.nets.narrowing import first_channels, narrowed
from stages.nets.user_network import source_digest, user_network

# Each is called with input shape, classes and the arguments of its family.
_MAKERS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any]]] = {
    "dscnn": (DsCnn, {"stem_stride": 1}),
    "dscnn_mlperf": (DsCnn, {"stem_stride": 2}),
    "res8": (ResKws, {"convolutions": 6, "dilated": False, "pooled": (4, 3)}),
    "res15": (ResKws, {"convolutions": 13, "dilated": True, "pooled": None}),
    "bc_kws": (BroadcastKws, {}),
    "vgg16": (Vgg16, {}),
    "resnet8": (ResNet, {"stages": 3, "blocks": 1}),
    "resnet18": (ResNet, {"stages": 4, "blocks": 2}),
    "inverted_cifar": (InvertedCifar, {}),
    "mobilenet_v1": (MobileNetV1, {}),
    "mobilenet_v2": (MobileNetV2, {}),
    "efficientnet_b0": (EfficientNetB0, {}),
    "mcunet_s": (McuNet, {"variant": "s"}),
    "mcunet_m": (McuNet, {"variant": "m"}),
    "etinynet": (EtinyNet, {}),
}


class Architecture(Config):
    """A network's shape: what architecture.json stores."""

    network: NetworkConfig
    widths: tuple[int, ...]  # channels per group
    source_sha256: str | None = None  # of the user's own module, which has to be the same when the network is rebuilt

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.network.input_shape

    @property
    def classes(self) -> int:
        return self.network.classes

    def build(self) -> nn.Module:
        return build(self.network, self.widths)


def architecture_of(config: NetworkConfig, widths: Sequence[int]) -> Architecture:
    """The architecture of a network whose groups have these widths."""
    return Architecture(network=config, widths=tuple(widths), source_sha256=source_digest(config))


def build(config: NetworkConfig, widths: Sequence[int] | None = None) -> nn.Module:
    """The network with random weights from torch's generator; `widths` are the channels per group, if it is pruned."""
    net = _full(config)
    if widths is None:
        return net
    channels = find_channels(net, config.input_shape)
    return narrowed(net, channels, first_channels(channels, widths, config.title))


def _full(config: NetworkConfig) -> nn.Module:
    if config.name is None:
        return user_network(config)
    maker, fixed = _MAKERS[config.name]
    try:
        return maker(config.input_shape, config.classes, **fixed, **config.arguments)
    except ValueError as error:
        raise StageError(f"{config.name}: network.input_shape is {config.input_shape}, {error}") from error


def save_architecture(path: Path, architecture: Architecture) -> Path:
    """Write architecture.json."""
    return write_json(path, architecture.model_dump(mode="json", exclude_none=True))


def read_architecture(path: Path) -> Architecture:
    """Read architecture.json."""
    try:
        architecture = Architecture.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StageError(f"{path}: {where}: {first['msg'].lower()}; was it written by the prune step?") from error
    if architecture.source_sha256 != source_digest(architecture.network):
        raise StageError(
            f"{path}: the source of {architecture.network.module} is not the one that was pruned; run prune again"
        )
    return architecture
