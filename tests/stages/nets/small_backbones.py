"""Every backbone in a size that a test can run in moments."""

from __future__ import annotations

import torch
from torch import nn

from stages.nets.config import NetworkConfig

SMALL = {
    "dscnn": NetworkConfig(width=9, blocks=3),
    "dscnn_mlperf": NetworkConfig(name="dscnn_mlperf", width=9, blocks=2),
    "res8": NetworkConfig(name="res8", width=7),
    "res15": NetworkConfig(name="res15", width=6),
    "bc_kws": NetworkConfig(name="bc_kws", width=6),
    "vgg16": NetworkConfig(name="vgg16", width_multiplier=0.1),
    "resnet8": NetworkConfig(name="resnet8", width=6),
    "resnet18": NetworkConfig(name="resnet18", width=5),
    "inverted_cifar": NetworkConfig(name="inverted_cifar", width_multiplier=0.5),
    "mobilenet_v1": NetworkConfig(name="mobilenet_v1", input_shape=(33, 40, 3)),
    "mobilenet_v2": NetworkConfig(name="mobilenet_v2", input_shape=(33, 40, 3), width_multiplier=0.25),
    "mobilenet_v2_published": NetworkConfig(
        name="mobilenet_v2", input_shape=(33, 40, 3), width_multiplier=0.25, extras=False
    ),
    "efficientnet_b0": NetworkConfig(name="efficientnet_b0", input_shape=(33, 40, 3), width_multiplier=0.25),
    "mcunet_s": NetworkConfig(name="mcunet_s", input_shape=(33, 40, 3), width_multiplier=0.25, classes=7),
    "mcunet_m": NetworkConfig(name="mcunet_m", input_shape=(33, 40, 3), width_multiplier=0.25, classes=7),
    "etinynet": NetworkConfig(name="etinynet", input_shape=(33, 40, 3), width_multiplier=0.25, classes=7),
}


def shaken(net: nn.Module) -> nn.Module:
    """Batch normalisation with statistics and scales that folding and cutting must not ignore; in eval mode."""
    generator = torch.Generator().manual_seed(3)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            for tensor, low in (
                (module.weight, 0.5),
                (module.bias, -0.5),
                (module.running_mean, -0.5),
                (module.running_var, 0.5),
            ):
                tensor.data.uniform_(low, low + 1, generator=generator)
    return net.eval()


def images(config: NetworkConfig, count: int, seed: int = 0) -> torch.Tensor:
    """Random inputs, NCHW."""
    height, width, channels = config.input_shape
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(seed))
