"""Zero padding and sliding windows as TensorFlow means them: 'same' starts a window at every stride-th pixel."""

from __future__ import annotations

from collections.abc import Sequence

Pads = tuple[int, int, int, int]  # top, bottom, left, right
NO_PADS: Pads = (0, 0, 0, 0)


def windows(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """How many places a sliding window takes along one axis."""
    reach = (kernel - 1) * dilation + 1
    return -(-size // stride) if padding == "same" else max(0, -(-(size - reach + 1) // stride))


def padding_around(size: int, kernel: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Zeros before and behind along one axis; where the total is odd, the extra one is behind."""
    if padding == "valid":
        return 0, 0
    reach = (kernel - 1) * dilation + 1
    total = max(0, (windows(size, kernel, stride, dilation, padding) - 1) * stride + reach - size)
    return total // 2, total - total // 2


def zero_pads(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: str
) -> Pads:
    """Zeros on all sides of a map."""
    rows, columns = (padding_around(*axis, padding) for axis in zip(size, kernel, stride, dilation, strict=True))
    return *rows, *columns


def map_size(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: str
) -> tuple[int, int]:
    """Height and width of what a sliding window makes of a map."""
    height, width = (windows(*axis, padding) for axis in zip(size, kernel, stride, dilation, strict=True))
    return height, width
