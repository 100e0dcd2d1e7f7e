"""Channel groups: which activations have to keep the same channels.

Channels are tied wherever an op passes them through one to one: depthwise convolution, pooling, activation, reshape,
and every operand of an Add or Mul (a gate has the channels of the map it multiplies). The groups are the connected
components of these ties (paper, section 'Pruning algorithm', residual connections). The network's inputs, and the class
scores at its end, are given from outside and belong to none. Nor do tensors that are concatenated, or come from a
concatenation: their channels are counted by position, so all of them stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.graph.graph import Op, Tensor

# CONV_2D and FULLY_CONNECTED mix their input channels and open a new group at their output; these do not.
PASS_THROUGH = frozenset(
    {
        "DEPTHWISE_CONV_2D",
        "AVERAGE_POOL_2D",
        "MAX_POOL_2D",
        "MEAN",
        "RESHAPE",
        "ADD",
        "MUL",
        "PAD",
        "RELU",
        "RELU6",
        "HARD_SWISH",
        "LOGISTIC",
        "SOFTMAX",
    }
)


def channel_groups(
    tensors: Sequence[Tensor], ops: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]
) -> list[int | None]:
    """The group of every tensor, numbered in the order in which `ops` compute them; constants have None."""
    leader = list(range(len(tensors)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for op in ops:
        if op.kind in PASS_THROUGH:
            tied = [index for index in (*op.inputs, *op.outputs) if index >= 0 and tensors[index].data is None]
            for index in tied[1:]:
                leader[find(index)] = find(tied[0])

    joined = [index for op in ops if op.kind == "CONCATENATION" for index in (*op.inputs, *op.outputs)]
    fixed = {find(index) for index in (*inputs, *outputs, *joined)}
    number: dict[int, int] = {}
    groups: list[int | None] = [None] * len(tensors)
    for op in ops:
        for index in op.outputs:
            root = find(index)
            if root not in fixed:
                groups[index] = number.setdefault(root, len(number))
    return groups
