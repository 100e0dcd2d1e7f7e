"""Bias and scaling of output channels in as few bits as they need: boards/firmware/kernels/inner/packed_channels.h.

A multiplier of 31 bits and its shift follow from the scale of a channel's weights, a float of 24 significant bits, so
that scale is stored instead: as the distance of its bits from those of the layer's smallest. Biases take as many bits
as the layer's largest, or all 32 where there is but one scale, so that they can be copied. Nothing is lost: what the
device computes from the codes is computed here as well and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stages.firmware.fast.scaling import Scaling
from stages.firmware.kernels.c_text import c_array
from stages.firmware.kernels.parameters import stored_bias, weighted_operands
from stages.graph.arithmetic.int8_pointwise import scale_of
from stages.graph.graph import Graph, Op

_READ_BYTES = 8  # a field is read as two words


@dataclass(frozen=True)
class PackedChannels:
    """Codes, and the members of struct packed_channels beside them."""

    codes: np.ndarray  # uint8
    lowest_scale: int  # as the bits of a float, like the next two
    input_scale: int
    output_scale: int
    bias_bits: int
    scale_bits: int

    def declaration(self, name: str) -> str:
        title = f"channels: {self.bias_bits} bits of bias, then {self.scale_bits} of the weights' scale"
        return c_array("uint8_t", f"{name}_codes", self.codes, title)

    def members(self, name: str) -> dict[str, object]:
        return {
            "codes": f"{name}_codes",
            "lowest_scale": self.lowest_scale,
            "input_scale": self.input_scale,
            "output_scale": self.output_scale,
            "bias_bits": self.bias_bits,
            "scale_bits": self.scale_bits,
        }


def packed_channels(graph: Graph, op: Op, scaling: Scaling) -> PackedChannels | None:
    """None where the multipliers are not those of the scales, as of scales too small for any, or shift to the left."""
    source, weights, result = weighted_operands(graph, op)
    assert weights.quantisation
    outputs = len(scaling.bias)
    patterns = np.broadcast_to(_patterns(weights.quantisation.scale), outputs)
    (input_scale,), (output_scale,) = (_patterns([scale_of(tensor)]).tolist() for tensor in (source, result))
    found = [device_multiplier(input_scale, pattern, output_scale) for pattern in patterns.tolist()]
    wanted = zip(scaling.multiplier.tolist(), scaling.right.tolist(), strict=True)
    if not (scaling.factor == 2).all() or found != list(wanted):
        return None
    lowest = int(patterns.min())
    bias = stored_bias(graph, op, outputs)
    scale_bits = int(patterns.max() - lowest).bit_length()
    bias_bits = 1 + int(np.maximum(bias, -1 - bias).max()).bit_length() if scale_bits else 32
    mask = (1 << bias_bits) - 1
    channels = (bias & mask) | ((patterns - lowest) << bias_bits)
    return PackedChannels(
        _bit_string(channels.tolist(), bias_bits + scale_bits, scale_bits or bias_bits),
        *(lowest, input_scale, output_scale, bias_bits, scale_bits),
    )


def _patterns(scales: Sequence[float]) -> np.ndarray:
    return np.array(scales, "<f4").view("<u4").astype(np.int64)


def device_multiplier(input_scale: int, weight_scale: int, output_scale: int) -> tuple[int, int]:
    """Multiplier and right shift as set_factor() in packed_channels.c computes them, from the bits of floats."""
    first, second, divisor = ((bits & 0x7FFFFF) | 0x800000 for bits in (input_scale, weight_scale, output_scale))
    quotient = (first * second << 16) // divisor
    length = quotient.bit_length()
    rounded = ((quotient >> (length - 32)) + 1) >> 1
    carried = rounded >> 31
    exponent = (input_scale >> 23) + (weight_scale >> 23) - (output_scale >> 23)
    return rounded >> carried, 127 + 23 + 16 - length - exponent - carried


def _bit_string(values: list[int], bits: int, last_bits: int) -> np.ndarray:
    """All values behind one another, the lowest bit first; the last field is read as two words."""
    whole = sum(value << (bits * index) for index, value in enumerate(values))
    last_byte = (len(values) * bits - last_bits) // 8
    return np.frombuffer(whole.to_bytes(last_byte + _READ_BYTES, "little"), np.uint8)
