"""Channel groups: which channels of which activations live and die together.

A channel keeps its identity wherever an op passes it on: through depthwise convolution (with a multiplier m, m results
are one channel), pooling, activation and reshape, and into its place in a concatenation. An Add or Mul ties its
operands, channel by channel (a gate has the channels of the map it multiplies). Channels that occur in the same
activations, and as often, are exchangeable: they form a group, of which pruning may keep as many as it likes (paper,
section 'Pruning algorithm', residual connections). The network's inputs, and the class scores at its end, are given
from outside: their channels belong to no group and all stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.graph.graph import NO_GROUP, Op, Tensor

# CONV_2D and FULLY_CONNECTED mix their input channels and make new ones; these do not.
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
        "CONCATENATION",
    }
)


def channel_groups(
    tensors: Sequence[Tensor], ops: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]
) -> list[np.ndarray | None]:
    """Group and number within it of every channel of every activation (see `Tensor.channels`); constants have None.

    Groups, and the channels in them, are numbered in the order in which `ops` compute them.
    """
    ties = _Ties()
    names: list[np.ndarray | None] = [None] * len(tensors)
    for index in inputs:
        names[index] = ties.new(tensors[index].shape[-1])
    for op in ops:
        read = [known for index in op.inputs if index >= 0 and (known := names[index]) is not None]
        for index in op.outputs:
            names[index] = _passed_on(op, read, tensors[index].shape[-1], ties)
    leaders = ties.leaders()
    fixed = {int(name) for index in (*inputs, *outputs) for name in leaders[names[index]]}
    found = {id(axis): leaders[axis] for axis in names if axis is not None}  # passed on, it is the same object
    numbered = _numbered([found[id(names[index])] for op in ops for index in op.outputs], _occurrences(found), fixed)
    places = {key: np.array([numbered.get(int(name), (NO_GROUP, 0)) for name in axis]) for key, axis in found.items()}
    return [None if axis is None else places[id(axis)] for axis in names]


class _Ties:
    """Names of channels, some of which turn out to be the same."""

    def __init__(self) -> None:
        self._leader: list[int] = []

    def new(self, count: int) -> np.ndarray:
        first = len(self._leader)
        self._leader.extend(range(first, first + count))
        return np.arange(first, first + count)

    def tie(self, one: np.ndarray, other: np.ndarray) -> None:
        for first, second in zip(one.tolist(), other.tolist(), strict=True):
            self._leader[self._find(second)] = self._find(first)

    def leaders(self) -> np.ndarray:
        return np.array([self._find(name) for name in range(len(self._leader))], dtype=int)

    def _find(self, name: int) -> int:
        leader = self._leader
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name


def _passed_on(op: Op, read: Sequence[np.ndarray], length: int, ties: _Ties) -> np.ndarray:
    """The names of an op's resulting channels, `length` of them."""
    if op.kind not in PASS_THROUGH or not read:
        return ties.new(length)
    if op.kind == "CONCATENATION":
        return np.concatenate(read)
    if op.kind == "DEPTHWISE_CONV_2D" and len(read[0]) < length:
        return np.repeat(read[0], length // len(read[0]))
    if op.kind == "RESHAPE" and len(read[0]) < length:
        return np.tile(read[0], length // len(read[0]))  # position after position, each with all channels
    for other in read[1:]:
        ties.tie(read[0], other)
    return read[0]


def _occurrences(axes: dict[int, np.ndarray]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Where each channel occurs, and how often."""
    found: dict[int, list[tuple[int, int]]] = {}
    for place, axis in enumerate(axes.values()):
        for name, times in zip(*np.unique(axis, return_counts=True), strict=True):
            found.setdefault(int(name), []).append((place, int(times)))
    return {name: tuple(places) for name, places in found.items()}


def _numbered(
    axes: Sequence[np.ndarray], occurrences: dict[int, tuple[tuple[int, int], ...]], fixed: set[int]
) -> dict[int, tuple[int, int]]:
    """Group, and number within it, of each channel that may go."""
    groups: dict[tuple[tuple[int, int], ...], int] = {}
    sizes: dict[int, int] = {}
    numbered: dict[int, tuple[int, int]] = {}
    for axis in axes:
        for name in axis.tolist():
            if name in fixed or name in numbered:
                continue
            group = groups.setdefault(occurrences[name], len(groups))
            numbered[name] = (group, sizes.get(group, 0))
            sizes[group] = numbered[name][1] + 1
    return numbered
