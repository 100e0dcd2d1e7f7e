"""One right shift for all channels of a layer behind a ReLU: the same int8 as two roundings, for every sum."""

from __future__ import annotations

import numpy as np
import pytest

from stages.firmware.fast.scaling import commonly_shifted, exact_scaling
from stages.firmware.kernels.parameters import channel_multipliers
from stages.graph.arithmetic.fixed_point import rescale
from stages.graph.arithmetic.int8_pointwise import activation_range
from stages.graph.graph import ConvOptions
from tests.stages.graph.int8_graphs import Int8Builder


@pytest.mark.parametrize("seed", range(6))
def test_every_sum_ends_where_two_roundings_bring_it(seed: int) -> None:
    builder = Int8Builder(seed)
    x = builder.conv(builder.input(2, 2, 8), 12, (1, 1), ConvOptions(activation="relu"))
    graph = builder.graph(x)
    (op,) = graph.ops
    own = exact_scaling(graph, op, axis=0)
    assert own is not None
    common = commonly_shifted(graph, op, own, axis=0)
    assert common.is_common and len(set(common.right)) == 1
    result = graph.tensors[op.outputs[0]]
    lowest, highest = activation_range(result, "relu")
    for channel, multiplier in enumerate(channel_multipliers(graph, op, 12)):
        top = int(280 * 2 ** (31 - multiplier.shift) / max(multiplier.mantissa, 1)) + 10  # beyond int8
        sums = np.unique(np.linspace(-top, top, 200_001).astype(np.int64))
        expected = np.clip(rescale(sums, multiplier.mantissa, multiplier.shift) + own.zero_point, lowest, highest)
        finer = sums * common.factor[channel]
        high = (finer * common.multiplier[channel] >> 32) + common.addend[channel]
        assert (np.clip(high >> common.right[channel], lowest, highest) == expected).all()


def test_without_a_relu_channels_keep_their_shifts() -> None:
    builder = Int8Builder(1)
    graph = builder.graph(builder.conv(builder.input(2, 2, 8), 12, (1, 1), ConvOptions()))
    own = exact_scaling(graph, graph.ops[0], axis=0)
    assert own is not None
    assert commonly_shifted(graph, graph.ops[0], own, axis=0) is own
