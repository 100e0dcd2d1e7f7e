"""Inputs for a network of unknown origin: the user's, or random ones and the two extremes."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import sample_shape
from stages.graph.ends import rows_of
from stages.graph.graph import Graph, Tensor
from stages.graph.tflite.float_edges import HOW_TO_QUANTISE

_WHOLE = ("int8", "uint8", "int16")


def pinned_bytes(path: Path, sha256: str) -> bytes:
    """The file, which must be the one whose digest was taken when the command began."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StageError(f"{path}: cannot be read ({error.strerror}); was it moved during the run?") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StageError(f"{path}: changed while the command ran; run it again")
    return content


def golden_inputs(graph: Graph, given: bytes | None, random_inputs: int, seed: int) -> np.ndarray:
    """(N, ...): the inputs in a .npy file, or random ones followed by the smallest and the largest values.

    Of several inputs the file is an .npz of one array each, in their order, and what comes back are rows of bytes.
    """
    tensors = [graph.tensors[index] for index in graph.inputs]
    for tensor in tensors:
        if tensor.dtype not in _WHOLE:
            raise StageError(f"input {tensor.name}: {tensor.dtype}, needed int8; {HOW_TO_QUANTISE}")
    if given is not None:
        return rows_of(_checked(given, tensors))
    rng, found = np.random.default_rng(seed), []
    for tensor in tensors:
        limits, shape = np.iinfo(tensor.dtype), sample_shape(tensor)
        drawn = rng.integers(limits.min, limits.max + 1, (random_inputs, *shape), tensor.dtype)
        extremes = [np.full((1, *shape), value, tensor.dtype) for value in (limits.min, limits.max)]
        found.append(np.concatenate([drawn, *extremes]))
    return rows_of(found)


def labelled(inputs: np.ndarray, given: bytes | None) -> np.ndarray:
    """The class of each input, int64; none without a file."""
    if given is None:
        return np.zeros(0, np.int64)
    labels = _array("--labels", given)
    if labels.shape != (len(inputs),) or labels.dtype.kind not in "iu":
        raise StageError(f"--labels: found {labels.dtype} {labels.shape}, needed whole numbers ({len(inputs)},)")
    return labels.astype(np.int64)


def _checked(content: bytes, tensors: Sequence[Tensor]) -> list[np.ndarray]:
    arrays = [_array("--inputs", content)] if len(tensors) == 1 else _arrays(content, len(tensors))
    for inputs, tensor in zip(arrays, tensors, strict=True):
        shape = sample_shape(tensor)
        if (
            inputs.dtype != tensor.dtype
            or inputs.shape[1:] != shape
            or not len(inputs)
            or len(inputs) != len(arrays[0])
        ):
            found = f"{inputs.dtype} {inputs.shape}"
            needed = f"{tensor.dtype} (N, {', '.join(map(str, shape))}) with N >= 1"
            raise StageError(f"--inputs: found {found}, needed {needed}")
    return arrays


def _arrays(content: bytes, count: int) -> list[np.ndarray]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            found = [stored[name] for name in stored.files] if isinstance(stored, np.lib.npyio.NpzFile) else []
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise StageError(f"--inputs: not an .npz file ({error}); save the arrays with numpy.savez") from error
    if len(found) != count:
        raise StageError(f"--inputs: found {len(found)} arrays, needed {count}, one for each input in their order")
    return found


def _array(option: str, content: bytes) -> np.ndarray:
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StageError(f"{option}: not a .npy file ({error}); save the array with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise StageError(f"{option}: found an archive, needed one array; save it with numpy.save")
    return found
