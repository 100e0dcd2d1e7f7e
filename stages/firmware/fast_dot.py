"""The matrix product of a layer on the fast kernels: its weights in blocks, and the assembly that runs over them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from stages.firmware.assembly.dot import CHANNELS, DotShape, dot_function, header_words
from stages.firmware.c_text import c_array
from stages.firmware.fast_scaling import Scaling
from stages.firmware.kernel_parameters import weighted_operands, weights_title
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op
from stages.graph.int8_reference import activation_range

Weights = Literal["fast", "small"]  # int16, ready for the multiplier, or int8, widened on the way there


class Dot:
    """The matrix product of a layer: its packed blocks and the assembly that runs over them."""

    def __init__(
        self,
        graph: Graph,
        op: Op,
        name: str,
        scaling: Scaling,
        weights: np.ndarray,
        places: tuple[int, int],
        stored: Weights,
    ) -> None:
        """`weights`: outputs x lines x taps; `places`: bytes from line to line and from pixel to pixel."""
        assert isinstance(op.options, ConvOptions | ActivationOptions)
        _, original, result = weighted_operands(graph, op)
        lowest, highest = activation_range(result, op.options.activation)
        self.outputs, lines, taps = weights.shape
        self.title = weights_title(original)
        self.name = name
        # A weight that meets one pixel only costs its way from flash above all. A layer that scales up needs int16.
        is_short = stored == "small" or result.elements == len(weights)
        self.weight_bytes = 1 if is_short and (scaling.factor == 2).all() else 2
        self.blocks = packed_blocks(scaling, weights, self.weight_bytes)
        self._elements = places[1] // 2
        self._zero = scaling.zero
        self._shapes = {
            pixels: DotShape(
                *(pixels, lines, (taps + 1) // 2, places[0] if lines > 1 else 0, places[1]),
                *(lowest, highest, scaling.some_unshifted, self.weight_bytes),
            )
            for pixels in (1, 2)
        }

    def _used(self, pixels: int, run: int) -> list[int]:
        """One, two or both: which of the functions a layer of so many pixels, in runs of so many, calls."""
        parts = {run, pixels % run} - {0}
        return [n for n, used in ((1, any(p % 2 for p in parts)), (2, max(parts) > 1)) if used]

    def members(self, pixels: int, run: int) -> dict[str, object]:
        used = self._used(pixels, run)
        return {
            "outputs": self.outputs,
            "zero": self._zero,
            "two_pixels": self._shapes[2].name if 2 in used else "0",
            "one_pixel": self._shapes[1].name if 1 in used else "0",
            "blocks": f"{self.name}_blocks",
            "block_words": self.blocks.shape[1],
            "pixel_elements": self._elements,
        }

    def declarations(self, pixels: int, run: int) -> str:
        functions = "".join(f"fast_dot_function {self._shapes[n].name};\n" for n in self._used(pixels, run))
        title = f"{self.title}, int{8 * self.weight_bytes} in blocks of {CHANNELS} outputs"
        return functions + c_array("int32_t", f"{self.name}_blocks", self.blocks, title)

    def assembly(self, pixels: int, run: int) -> tuple[tuple[str, str], ...]:
        return tuple((self._shapes[n].name, dot_function(self._shapes[n])) for n in self._used(pixels, run))


def packed_blocks(scaling: Scaling, weights: np.ndarray, weight_bytes: int) -> np.ndarray:
    """int32, for each four outputs their header and their weights (outputs x lines x taps); see assembly/dot.py."""
    outputs = len(weights)
    doubling = 2 // weight_bytes  # int8 weights are not doubled, their sums are
    words = (
        _int16_words(weights * (scaling.factor[:, np.newaxis, np.newaxis])) if doubling == 1 else _int8_words(weights)
    )
    bias = (scaling.bias // doubling).astype(np.int32)
    blocks = []
    for start in range(0, outputs, CHANNELS):
        first = min(start, outputs - CHANNELS)
        own = slice(first, first + CHANNELS)
        blocks.append(np.concatenate([bias[own], *_scaling_words(scaling, own), words[own].T.reshape(-1)]))
    assert blocks[0].size == header_words(scaling.some_unshifted) + CHANNELS * words.shape[1]
    return np.stack(blocks)


def _scaling_words(scaling: Scaling, own: slice) -> list[np.ndarray]:
    if scaling.some_unshifted:
        return [scaling.words[own].astype(np.int32).reshape(-1)]
    return [scaling.multiplier[own].astype(np.int32), (scaling.right[own] - 1).astype(np.uint8).view("<i4")]


def _int16_words(weights: np.ndarray) -> np.ndarray:
    """Two taps a word, for each output."""
    padded = np.pad(weights, ((0, 0), (0, 0), (0, weights.shape[2] % 2))).astype("<i2")
    return np.ascontiguousarray(padded.reshape(len(weights), -1)).view("<i4")


def _int8_words(weights: np.ndarray) -> np.ndarray:
    """Four taps a word, for each output; bytes 0 and 2, which are widened together, hold neighbours."""
    outputs, lines, taps = weights.shape
    padded = np.pad(weights, ((0, 0), (0, 0), (0, -taps % 4))).reshape(outputs, -1, 4)
    return np.ascontiguousarray(padded[..., [0, 2, 1, 3]].astype("<i1")).view("<i4")[..., 0]
