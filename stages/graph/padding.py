"""Zero padding as TensorFlow means it."""

from __future__ import annotations

Pads = tuple[int, int, int, int]  # top, bottom, left, right
NO_PADS: Pads = (0, 0, 0, 0)


def same_pads(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Pads:
    """Zeros that TensorFlow's 'same' adds: output = ceil(size / stride), the odd one at the bottom and right."""
    pads: list[int] = []
    for length, taps, step, spread in zip(size, kernel, stride, dilation, strict=True):
        reach = (taps - 1) * spread + 1
        total = max((-(-length // step) - 1) * step + reach - length, 0)
        pads += [total // 2, total - total // 2]
    return pads[0], pads[1], pads[2], pads[3]
