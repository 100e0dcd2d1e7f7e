"""What a window that slides over a map sees."""

from __future__ import annotations

import numpy as np

from stages.graph.graph import ConvOptions, PoolOptions
from stages.graph.padding import zero_pads


def windows(
    x: np.ndarray, kernel: tuple[int, ...], options: ConvOptions | PoolOptions, dilation: tuple[int, int], fill: float
) -> np.ndarray:
    """A view (N, H', W', C, kh, kw) of what the sliding window sees; outside the map it sees `fill`."""
    pads = zero_pads(x.shape[1:3], kernel, options.stride, dilation, options.padding)
    padded = np.pad(x, ((0, 0), pads[:2], pads[2:], (0, 0)), constant_values=fill) if any(pads) else x
    spans = tuple((side - 1) * spread + 1 for side, spread in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(1, 2))
    return view[:, :: options.stride[0], :: options.stride[1], :, :: dilation[0], :: dilation[1]]


def ungrouped(weights: np.ndarray, channels: int) -> np.ndarray:
    """The filters of a convolution in groups as those of a whole one: zeros where a filter sees nothing."""
    outputs, height, width, own = weights.shape
    if own == channels:
        return weights
    whole = np.zeros((outputs, height, width, channels), weights.dtype)
    for output in range(outputs):
        first = output // (outputs * own // channels) * own
        whole[output, :, :, first : first + own] = weights[output]
    return whole
