"""The matrix product of a layer on the fast kernels: its weights in blocks, and the assembly that runs over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.firmware.assembly.dot import (
    CHANNELS,
    LARGEST_STORE_OFFSET,
    DotShape,
    Requantisation,
    VectorShape,
    dot_function,
    header_words,
    vector_function,
)
from stages.firmware.assembly.elementwise import (
    MOST_PIXEL_DEPTH,
    WIDEN_IN_ORDER_NAME,
    WIDEN_NAME,
    widen_function,
    widen_in_order_function,
    widen_pixels_function,
    widen_pixels_name,
)
from stages.firmware.fast.scaling import Scaling, commonly_shifted, requantisation
from stages.firmware.kernels.c_text import c_array
from stages.firmware.kernels.parameters import weighted_operands, weights_title
from stages.graph.graph import Graph, Op

Weights = Literal["fast", "small"]  # int16, ready for the multiplier, or int8, widened on the way there
_MOST_OF_A_HIGH_SUM = 2**23  # 256 times as much has to fit a register


@dataclass(frozen=True)
class Place:
    """Where the activations of a layer lie in its buffer."""

    pixels: frozenset[int]  # of a run: all of them meet a block of weights before the next block; runs may differ
    line_bytes: int  # from line to line; 0: pixels, which are widened one by one
    pixel_bytes: int  # from pixel to pixel
    row_bytes: int = 0  # from a row's pixels to those of the row below, where two rows run together
    width: int = 0  # of a row, then


class Dot:
    """The matrix product of a layer: its packed blocks and the assembly that runs over them."""

    def __init__(self, graph: Graph, op: Op, name: str, scaling: Scaling, weights: np.ndarray, place: Place) -> None:
        """`weights`: outputs x lines x taps."""
        _, original, _ = weighted_operands(graph, op)
        self.outputs, self.lines, self.taps = weights.shape
        self.title, self.name, self.place = weights_title(original), name, place
        # Channels in fours may stay in the order in which they are widened fastest; the weights take it on.
        channels = original.shape[-1]
        self.is_apart = channels % 4 == 0 or not place.line_bytes
        if self.is_apart:
            fours = self.taps // 4 * 4
            apart = weights[..., :fours].reshape(*weights.shape[:2], -1, 4)[..., [0, 2, 1, 3]]
            weights = np.concatenate([apart.reshape(*weights.shape[:2], fours), weights[..., fours:]], axis=2)
        self.stored = min(self.outputs, CHANNELS)
        is_alone = place.pixels == {1} and place.line_bytes == 0  # no line of an image: a vector's functions differ
        halves = _halves(scaling, weights) if is_alone and self.lines == 1 else None
        self.is_vector = halves is not None
        scaling = scaling if self.is_vector else commonly_shifted(graph, op, scaling, axis=0)
        self.scaling = requantisation(graph, op, scaling)
        self.functions = {pixels: shape.name for pixels, shape in self._shapes().items()}
        self.blocks = (
            packed_blocks(scaling, self.scaling, scaling.bias, _int16_words(weights * _columns(scaling)))
            if halves is None
            else packed_blocks(scaling, self.scaling, *halves)
        )

    def _shapes(self) -> dict[int, DotShape | VectorShape]:
        """By the number of pixels at a time."""
        pairs = (self.taps + 1) // 2
        if self.is_vector:
            return {1: VectorShape(pairs + pairs % 2, self.stored, self.scaling)}
        place, outputs = self.place, self.outputs
        pitch = place.line_bytes if self.lines > 1 else 0
        far = (place.row_bytes, place.width * outputs) if place.row_bytes else (place.pixel_bytes, outputs)
        step = 1 if place.row_bytes else 2

        def shape(pixels: int, *steps: int) -> DotShape:
            return DotShape(pixels, self.lines, pairs, pitch, *steps, self.stored, self.scaling)

        alone = shape(1, 0, place.pixel_bytes, 0, outputs)
        if max(place.pixels) == 1 or far[1] + CHANNELS > LARGEST_STORE_OFFSET:
            return {1: alone}
        two = shape(2, far[0], step * place.pixel_bytes, far[1], step * outputs)
        return {1: alone, 2: two} if any(count % 2 for count in place.pixels) else {2: two}

    @property
    def element_bytes(self) -> int:
        """Of a weight."""
        return 1 if self.is_vector else 2

    @property
    def pixel_elements(self) -> int:
        """Of the widened activations, from pixel to pixel."""
        return -(-self.taps // 4) * 4 if self.is_vector else self.place.pixel_bytes // 2

    def members(self) -> dict[str, object]:
        return {
            "two_pixels": self.functions.get(2, "0"),
            "one_pixel": self.functions.get(1, "0"),
            "blocks": f"{self.name}_blocks",
            "widen": self._widening[0],
            "outputs": self.outputs,
            "block_words": self.blocks.shape[1],
            "pixel_elements": self.pixel_elements,
            "is_apart": int(self.is_apart),
        }

    @property
    def _widening(self) -> tuple[str, str]:
        if self.is_by_pixel:
            return widen_pixels_name(self.taps), widen_pixels_function(self.taps)
        if self.is_apart:
            return WIDEN_NAME, widen_function()
        return WIDEN_IN_ORDER_NAME, widen_in_order_function()

    @property
    def is_by_pixel(self) -> bool:
        """Whether pixels whose number of channels is odd, or no multiple of four, are widened one by one."""
        return self.is_apart and self.taps % 4 != 0 and self.taps <= MOST_PIXEL_DEPTH and not self.is_vector

    @property
    def stored_bytes(self) -> int:
        return self.blocks.nbytes

    def declarations(self) -> str:
        functions = f"fast_widen_function {self._widening[0]};\n"
        functions += "".join(f"fast_dot_function {name};\n" for name in self.functions.values())
        title = f"{self.title}, int{8 * self.element_bytes} in blocks of {CHANNELS} outputs"
        return functions + c_array("int32_t", f"{self.name}_blocks", self.blocks, title)

    def assembly(self) -> tuple[tuple[str, str], ...]:
        return (self._widening, *((shape.name, _text(shape)) for shape in self._shapes().values()))


def _text(shape: DotShape | VectorShape) -> str:
    return vector_function(shape) if isinstance(shape, VectorShape) else dot_function(shape)


def packed_blocks(scaling: Scaling, ends: Requantisation, bias: np.ndarray, words: np.ndarray) -> np.ndarray:
    """int32, for each four outputs their header and their weights (outputs x words); see assembly/dot.py.

    Both are given for each four outputs that make a block, or for each output.
    """
    outputs = len(scaling.multiplier)
    fields = [scaling.multiplier, scaling.addend, scaling.right]
    fields += [scaling.mask] if ends.is_masked else []
    missing = max(0, CHANNELS - outputs)
    fields = [np.pad(field, (0, missing)) for field in fields]
    blocks = []
    for number, first in enumerate(block_starts(outputs)):
        own = slice(first, first + CHANNELS)
        given = slice(CHANNELS * number, CHANNELS * (number + 1)) if len(bias) != outputs else own
        multiplier, addend, right, *mask = (field[own] for field in fields)
        shifts = [] if ends.right else [right.astype(np.uint8).view("<i4")]
        header = [_padded(bias[given]).astype(np.int32), multiplier, addend, *shifts, *mask]
        taps = _padded(words[given]).T.reshape(-1)
        blocks.append(np.concatenate([part.astype(np.int64).astype(np.int32) for part in (*header, taps)]))
    assert blocks[0].size == header_words(ends) + taps.size
    return np.stack(blocks)


def block_starts(outputs: int) -> list[int]:
    """The first output of each block; the last may begin inside the one before."""
    return [max(0, min(start, outputs - CHANNELS)) for start in range(0, outputs, CHANNELS)]


def _padded(values: np.ndarray) -> np.ndarray:
    """As many as a block has."""
    return np.pad(values, ((0, CHANNELS - len(values)), *((0, 0),) * (values.ndim - 1)))


def _columns(scaling: Scaling) -> np.ndarray:
    return scaling.factor[:, np.newaxis, np.newaxis]


def _int16_words(weights: np.ndarray) -> np.ndarray:
    """Two taps a word, for each output."""
    padded = np.pad(weights, ((0, 0), (0, 0), (0, weights.shape[2] % 2))).astype("<i2")
    return np.ascontiguousarray(padded.reshape(len(weights), -1)).view("<i4")


def _halves(scaling: Scaling, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Biases and words for `vector_function`: of each block four biases, and two words for a pair of taps.

    None where the sums of the high halves might not fit, or a pair of weights does not fit an int16.
    """
    outputs, _, taps = weights.shape
    bias = scaling.bias // 2
    wide = np.pad(weights.reshape(outputs, taps), ((0, 0), (0, -taps % 4))).astype(np.int64)
    sizes = np.abs(bias) + 128 * np.abs(wide).sum(axis=1)
    if (scaling.factor != 2).any() or sizes.max() >= _MOST_OF_A_HIGH_SUM:
        return None
    biases, words = [], []
    for first in block_starts(outputs):
        own, sums = _padded(wide[first : first + CHANNELS]), _padded(bias[first : first + CHANNELS])
        both = 256 * own[1::2] + own[::2]
        if both.min() < -(2**15) or both.max() >= 2**15:
            return None
        biases += [sums[0] + 256 * sums[1], sums[0], sums[2] + 256 * sums[3], sums[2]]
        pairs = np.ascontiguousarray(both.astype("<i2")).view("<i4").T  # pairs of taps x two channels each
        words.append(pairs.reshape(-1, CHANNELS).T)  # a round takes two pairs
    return np.array(biases), np.concatenate(words)
