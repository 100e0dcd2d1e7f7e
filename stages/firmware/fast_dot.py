"""The matrix product of a layer on the fast kernels: its weights in blocks, and the assembly that runs over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.firmware.assembly.dot import CHANNELS, DotShape, dot_function, header_words
from stages.firmware.assembly.dot_loop import SIDE_BY_SIDE, dot_loop_function, round_taps
from stages.firmware.assembly.elementwise import WIDEN_NAME, WIDEN_TWO_NAME, widen_function
from stages.firmware.c_text import c_array
from stages.firmware.fast_scaling import Scaling
from stages.firmware.kernel_parameters import weighted_operands, weights_title
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op
from stages.graph.int8_reference import activation_range

Weights = Literal["fast", "small"]  # int16, ready for the multiplier, or int8, widened on the way there


SPARE_ELEMENTS = 32  # int16 behind a buffer that a loop may read, and not use
_SPARE_WORDS = 4  # likewise behind the weights
_SHORT_PAIRS = 24  # of taps in several lines: straight code is then hardly longer than a loop, and much faster


@dataclass(frozen=True)
class Place:
    """Where the activations of a layer lie in its buffer."""

    pixels: frozenset[int]  # of a run: all of them meet a block of weights before the next block; runs may differ
    line_bytes: int  # from line to line
    pixel_bytes: int  # from pixel to pixel


class Dot:
    """The matrix product of a layer: its packed blocks and the assembly that runs over them."""

    def __init__(
        self, graph: Graph, op: Op, name: str, scaling: Scaling, weights: np.ndarray, place: Place, stored: Weights
    ) -> None:
        """`weights`: outputs x lines x taps."""
        assert isinstance(op.options, ConvOptions | ActivationOptions)
        _, original, result = weighted_operands(graph, op)
        self.ends = (*activation_range(result, op.options.activation), scaling.some_unshifted)
        self.outputs, self.lines, self.taps = weights.shape
        self.title, self.name, self.place = weights_title(original), name, place
        self.weight_bytes = stored_weight_bytes(graph, op, scaling, stored)
        is_short = self.lines > 1 and self.lines * ((self.taps + 1) // 2) <= _SHORT_PAIRS
        self.looped = stored == "small" and self.weight_bytes == 1 and not is_short
        counts = place.pixels
        # To save code, the last of an odd number of pixels is done once more with the one before it.
        ones = {1} if any(count == 1 or (count % 2 and stored != "small") for count in counts) else set()
        self.shapes = {pixels: self._shape(pixels) for pixels in (*ones, *({2} if max(counts) > 1 else ()))}
        whole = max(round_taps(pixels) for pixels in self.shapes) if self.looped else 1
        self.taps += -self.taps % whole
        # Channels in fours may stay in the order in which they are widened fastest; the weights take it on.
        self.is_apart = original.shape[-1] % 4 == 0
        if self.is_apart:
            weights = weights.reshape(*weights.shape[:2], -1, 4)[..., [0, 2, 1, 3]].reshape(weights.shape)
        filled = np.pad(weights, ((0, 0), (0, 0), (0, self.taps - weights.shape[2])))
        self.blocks = packed_blocks(scaling, filled, self.weight_bytes)
        self._zero = scaling.zero

    @property
    def is_side_by_side(self) -> bool:
        """Two pixels beside each other, pair of taps by pair of taps: where a layer is a plain product of matrices."""
        return self.looped and self.lines == 1 and 2 in self.shapes and self.place.line_bytes == 0

    def _shape(self, pixels: int) -> DotShape:
        lines, pairs, pitch = self.lines, (self.taps + 1) // 2, self.place.line_bytes if self.lines > 1 else 0
        apart = self.place.pixel_bytes
        if self.looped:
            apart = 0 if pixels == 1 else SIDE_BY_SIDE if self.lines == 1 and self.place.line_bytes == 0 else apart
            lines = pairs = pitch = 0
        return DotShape(pixels, lines, pairs, pitch, apart, *self.ends, self.weight_bytes, self.looped)

    def members(self) -> dict[str, object]:
        loop = {}
        elements = self.place.pixel_bytes // 2
        if self.looped:
            elements = self.taps if self.is_side_by_side else elements
            line_bytes = (4 if self.is_side_by_side else 2) * self.taps
            loop = {
                "lines": self.lines,
                "line_bytes": line_bytes,
                "line_step": self.place.line_bytes - line_bytes,
                "group_bytes": 2 * max(self.shapes) * elements,
                "is_side_by_side": int(self.is_side_by_side),
            }
        return {
            "outputs": self.outputs,
            "zero": self._zero,
            **loop,
            "two_pixels": self.shapes[2].name if 2 in self.shapes else "0",
            "one_pixel": self.shapes[1].name if 1 in self.shapes else "0",
            "blocks": f"{self.name}_blocks",
            "block_words": self.blocks.shape[1],
            "widen": self._widening()[0] if self.is_apart else "0",
            "pixel_elements": elements,
        }

    def _widening(self) -> tuple[str, str]:
        name = WIDEN_TWO_NAME if self.is_side_by_side else WIDEN_NAME
        return name, widen_function(self.is_side_by_side)

    @property
    def stored_bytes(self) -> int:
        return self.blocks.nbytes + (4 * _SPARE_WORDS if self.looped else 0)

    def declarations(self) -> str:
        functions = f"fast_widen_function {self._widening()[0]};\n" if self.is_apart else ""
        functions += "".join(f"fast_dot_function {shape.name};\n" for shape in self.shapes.values())
        title = f"{self.title}, int{8 * self.weight_bytes} in blocks of {CHANNELS} outputs"
        words = np.pad(self.blocks.reshape(-1), (0, _SPARE_WORDS if self.looped else 0))
        return functions + c_array("int32_t", f"{self.name}_blocks", words, title)

    def assembly(self) -> tuple[tuple[str, str], ...]:
        make = dot_loop_function if self.looped else dot_function
        widening = (self._widening(),) if self.is_apart else ()
        return (*widening, *((shape.name, make(shape)) for shape in self.shapes.values()))


def stored_weight_bytes(graph: Graph, op: Op, scaling: Scaling, stored: Weights) -> int:
    """1 where the weight's way from flash is all that counts, as it meets one pixel only; scaling up needs 2."""
    _, weights, result = weighted_operands(graph, op)
    is_short = stored == "small" or result.elements == weights.shape[0]
    return 1 if is_short and (scaling.factor == 2).all() else 2


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
