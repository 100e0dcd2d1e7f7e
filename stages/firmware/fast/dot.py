"""The matrix product of a layer on the fast kernels: its weights in blocks, and the assembly that runs over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.firmware.assembly.dot import CHANNELS, DotShape, dot_function, header_words
from stages.firmware.assembly.elementwise import WIDEN_NAME, widen_function
from stages.firmware.fast.scaling import Scaling
from stages.firmware.kernels.c_text import c_array
from stages.firmware.kernels.parameters import weighted_operands, weights_title
from stages.graph.arithmetic.int8_pointwise import activation_range
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op

Weights = Literal["fast", "small"]  # int16, ready for the multiplier, or int8, widened on the way there


@dataclass(frozen=True)
class Place:
    """Where the activations of a layer lie in its buffer."""

    pixels: frozenset[int]  # of a run: all of them meet a block of weights before the next block; runs may differ
    line_bytes: int  # from line to line
    pixel_bytes: int  # from pixel to pixel


class Dot:
    """The matrix product of a layer: its packed blocks and the assembly that runs over them."""

    def __init__(self, graph: Graph, op: Op, name: str, scaling: Scaling, weights: np.ndarray, place: Place) -> None:
        """`weights`: outputs x lines x taps."""
        assert isinstance(op.options, ConvOptions | ActivationOptions)
        _, original, result = weighted_operands(graph, op)
        self.ends = (*activation_range(result, op.options.activation), scaling.some_unshifted)
        self.outputs, self.lines, self.taps = weights.shape
        self.title, self.name, self.place = weights_title(original), name, place
        self.weight_bytes = stored_weight_bytes(graph, op, scaling)
        counts = place.pixels
        ones = {1} if any(count % 2 for count in counts) else set()
        self.shapes = {pixels: self._shape(pixels) for pixels in (*ones, *({2} if max(counts) > 1 else ()))}
        # Channels in fours may stay in the order in which they are widened fastest; the weights take it on.
        self.is_apart = original.shape[-1] % 4 == 0
        if self.is_apart:
            weights = weights.reshape(*weights.shape[:2], -1, 4)[..., [0, 2, 1, 3]].reshape(weights.shape)
        self.blocks = packed_blocks(scaling, weights, self.weight_bytes)
        self._zero = scaling.zero

    def _shape(self, pixels: int) -> DotShape:
        pitch = self.place.line_bytes if self.lines > 1 else 0
        pairs = (self.taps + 1) // 2
        return DotShape(pixels, self.lines, pairs, pitch, self.place.pixel_bytes, *self.ends, self.weight_bytes)

    def members(self) -> dict[str, object]:
        return {
            "outputs": self.outputs,
            "zero": self._zero,
            "two_pixels": self.shapes[2].name if 2 in self.shapes else "0",
            "one_pixel": self.shapes[1].name if 1 in self.shapes else "0",
            "blocks": f"{self.name}_blocks",
            "block_words": self.blocks.shape[1],
            "widen": WIDEN_NAME if self.is_apart else "0",
            "pixel_elements": self.place.pixel_bytes // 2,
        }

    @property
    def stored_bytes(self) -> int:
        return self.blocks.nbytes

    def declarations(self) -> str:
        functions = f"fast_widen_function {WIDEN_NAME};\n" if self.is_apart else ""
        functions += "".join(f"fast_dot_function {shape.name};\n" for shape in self.shapes.values())
        title = f"{self.title}, int{8 * self.weight_bytes} in blocks of {CHANNELS} outputs"
        return functions + c_array("int32_t", f"{self.name}_blocks", self.blocks, title)

    def assembly(self) -> tuple[tuple[str, str], ...]:
        widening = ((WIDEN_NAME, widen_function()),) if self.is_apart else ()
        return (*widening, *((shape.name, dot_function(shape)) for shape in self.shapes.values()))


def stored_weight_bytes(graph: Graph, op: Op, scaling: Scaling) -> int:
    """1 where the weight's way from flash is all that counts, as it meets one pixel only; scaling up needs 2."""
    _, weights, result = weighted_operands(graph, op)
    return 1 if result.elements == weights.shape[0] and (scaling.factor == 2).all() else 2


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
