"""How important each channel is: the salience that decides which ones a group keeps."""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.channels import Channels, Layer


def saliences(net: nn.Module, channels: Channels) -> list[Tensor]:
    """Importance of every channel of every group: the largest over the group's layers.

    A norm of weights is no gamma: where a group has layers with batch normalisation, only those count (the gate of a
    squeeze-and-excitation has none).
    """
    found = []
    for group in range(len(channels.widths)):
        layers = channels.of_group(group)
        normalised = [layer for layer in layers if layer.norm is not None]
        found.append(_maximum([_layer_salience(net, layer) for layer in normalised or layers]))
    return found


def _layer_salience(net: nn.Module, layer: Layer) -> Tensor:
    """|gamma| where there is batch normalisation, else the L2 norm of the weights into the channel."""
    if layer.norm is not None:
        return net.get_parameter(f"{layer.norm}.weight").detach().abs()
    return net.get_parameter(f"{layer.weight}.weight").detach().flatten(1).norm(dim=1)


def _maximum(values: list[Tensor]) -> Tensor:
    largest = values[0]
    for value in values[1:]:
        largest = largest.maximum(value)
    return largest
