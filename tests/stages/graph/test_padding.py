"""Sliding windows and zeros around them, against sliding and counting."""

from __future__ import annotations

import numpy as np
import pytest

from stages.graph.padding import map_size, padding_around, windows, zero_pads


def counted_windows(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Slide and count: 'valid' stays inside, 'same' starts a window at every stride-th pixel."""
    if padding == "same":
        return len(range(0, size, stride))
    return sum(start + (kernel - 1) * dilation < size for start in range(0, size, stride))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_windows_are_as_many_as_can_be_counted(padding: str) -> None:
    for size, kernel, stride, dilation in np.ndindex(12, 5, 4, 3):
        arguments = (size + 1, kernel + 1, stride + 1, dilation + 1, padding)
        assert windows(*arguments) == counted_windows(*arguments), arguments


def test_same_pads_with_as_few_zeros_as_the_last_window_needs() -> None:
    for size, kernel, stride, dilation in np.ndindex(12, 5, 4, 3):
        arguments = (size + 1, kernel + 1, stride + 1, dilation + 1)
        before, behind = padding_around(*arguments, "same")
        last_end = (len(range(0, size + 1, stride + 1)) - 1) * (stride + 1) + kernel * (dilation + 1) + 1
        assert before + behind == max(0, last_end - (size + 1)), arguments
        assert behind - before in (0, 1), arguments
        assert padding_around(*arguments, "valid") == (0, 0)


def test_maps_have_rows_first() -> None:
    window = ((49, 10), (10, 4), (1, 2), (1, 1))
    assert zero_pads(*window, "same") == (4, 5, 1, 1)
    assert zero_pads(*window, "valid") == (0, 0, 0, 0)
    assert map_size(*window, "same") == (49, 5)
    assert map_size(*window, "valid") == (40, 4)
