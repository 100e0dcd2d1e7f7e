"""Inputs for a network of unknown origin: the user's, or random ones and the two extremes."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from pipeline.errors import StageError
from stages.graph.graph import Graph


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
    """(N, ...) int8: the inputs in a .npy file, or random ones followed by all -128 and all 127."""
    tensor = graph.tensors[graph.inputs[0]]
    if tensor.dtype != "int8":
        raise StageError(f"input {tensor.name}: {tensor.dtype}, needed int8; quantise the network in full first")
    if given is not None:
        return _checked(given, tensor.shape[1:])
    drawn = np.random.default_rng(seed).integers(-128, 128, (random_inputs, *tensor.shape[1:]), np.int8)
    extremes = [np.full((1, *tensor.shape[1:]), value, np.int8) for value in (-128, 127)]
    return np.concatenate([drawn, *extremes])


def labelled(inputs: np.ndarray, given: bytes | None) -> np.ndarray:
    """The class of each input, int64; none without a file."""
    if given is None:
        return np.zeros(0, np.int64)
    labels = _array("--labels", given)
    if labels.shape != (len(inputs),) or labels.dtype.kind not in "iu":
        raise StageError(f"--labels: found {labels.dtype} {labels.shape}, needed whole numbers ({len(inputs)},)")
    return labels.astype(np.int64)


def _checked(content: bytes, shape: tuple[int, ...]) -> np.ndarray:
    inputs = _array("--inputs", content)
    if inputs.dtype != np.int8 or inputs.shape[1:] != shape or not len(inputs):
        found = f"{inputs.dtype} {inputs.shape}"
        raise StageError(f"--inputs: found {found}, needed int8 (N, {', '.join(map(str, shape))}) with N >= 1")
    return inputs


def _array(option: str, content: bytes) -> np.ndarray:
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StageError(f"{option}: not a .npy file ({error}); save the array with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise StageError(f"{option}: found an archive, needed one array; save it with numpy.save")
    return found
