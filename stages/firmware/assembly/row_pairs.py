"""Products of depthwise convolutions on lines of words, each the int16 of two rows of the image, one above the other.

A column of the window has as many weights as it has rows, in words of rows 0 and 1, of rows 1 and 2 and so on, so that
the window may begin in the upper half of a word or in the lower one: SMLAD takes both halves, SMLATB and SMLABT what
is left at the ends. A window of one row has that weight alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stages.firmware.assembly.instructions import Instruction, load, multiply

RECORD = "r0"  # where a channel's weights begin, then its bias


@dataclass(frozen=True)
class Order:
    """A way to go through the products; what is loaded again needs no register in between."""

    products: tuple[tuple[int, int], ...]  # output column, tap
    activations_again: bool = False  # for each output
    weights_again: bool = True


def column_words(height: int) -> int:
    """Words of weights for one column of the window."""
    return max(1, height - 1)


def weight_words(weights: np.ndarray) -> np.ndarray:
    """int32, outputs x words, of int16 weights, height x width x outputs."""
    height, width, outputs = weights.shape
    if height == 1:
        weights = np.concatenate([weights, np.zeros_like(weights)])
    pairs = np.stack([weights[:-1], weights[1:]], axis=-1)  # pairs of rows x columns x outputs x 2
    return np.ascontiguousarray(pairs.transpose(2, 1, 0, 3)).view("<i4").reshape(outputs, width * column_words(height))


def column_products(
    window: tuple[int, int],
    stride: tuple[int, int],
    rows: int,
    order: Order,
    load_of: Callable[[str, int, int], Instruction],
) -> Iterator[Instruction]:
    """sum{row}{column} of every output; `load_of` loads a word by its line and column."""
    height, width = window
    words = column_words(height)
    lines = ((rows - 1) * stride[0] + height + 1) // 2
    yield load("bias", RECORD, 4 * words * width)
    begun: set[str] = set()
    loaded: set[str] = set()
    for output, tap in order.products:
        column = output * stride[1] + tap
        for line in range(lines):
            found = [(row, each) for row in range(rows) if (each := _product(height, 2 * line - row * stride[0]))]
            x = f"x{column}_{line}" + (f"_{output}" if order.activations_again else "")
            if found and x not in loaded:
                loaded.add(x)
                yield load_of(x, line, column)
            for row, (name, pair) in found:
                weights, total = f"w{tap}_{pair}" + (f"_{output}" if order.weights_again else ""), f"sum{row}{output}"
                if weights not in loaded:
                    loaded.add(weights)
                    yield load(weights, RECORD, 4 * (words * tap + pair))
                yield multiply(name, total, x, weights, total if total in begun else "bias")
                begun.add(total)


def _product(height: int, first: int) -> tuple[str, int] | None:
    """Which instruction multiplies a word whose lower half meets row `first` of the window, and with which weights."""
    if 0 <= first < height - 1:
        return "smlad", first
    if first == -1:
        return "smlatb", 0
    if first == height - 1:
        return ("smlabt", first - 1) if height > 1 else ("smlabb", 0)
    return None
