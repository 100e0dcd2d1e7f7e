"""The inputs or outputs of a network as one row of bytes, as they go over the link, and back.

A network with one input has rows that are simply its values; of several, the bytes stand one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.graph.graph import Graph

STATE_RUNS = 3  # inferences on each golden input of a network with a state, so that the state matters


def row_bytes(graph: Graph, ends: Sequence[int]) -> int:
    """Of all of them."""
    return sum(graph.tensors[index].nbytes for index in ends)


def arrays_of(graph: Graph, ends: Sequence[int], row: np.ndarray) -> list[np.ndarray]:
    """One array for each end, in its own shape and type."""
    content, found, start = np.ascontiguousarray(row).tobytes(), [], 0
    for index in ends:
        tensor = graph.tensors[index]
        part = content[start : start + tensor.nbytes]
        found.append(np.frombuffer(part, tensor.dtype).reshape(tensor.shape).copy())
        start += tensor.nbytes
    return found


def rows_of(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of bytes as int8 from one array for each end, samples along the first axis; the only one stays as it is."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate([np.ascontiguousarray(each).reshape(len(each), -1).view(np.int8) for each in arrays], axis=1)
