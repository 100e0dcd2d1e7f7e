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


def _checked(content: bytes, shape: tuple[int, ...]) -> np.ndarray:
    try:
        inputs = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StageError(f"--inputs: not a .npy file ({error}); save the inputs with numpy.save") from error
    if not isinstance(inputs, np.ndarray) or inputs.dtype != np.int8 or inputs.shape[1:] != shape or not len(inputs):
        found = f"{inputs.dtype} {inputs.shape}" if isinstance(inputs, np.ndarray) else "an archive"
        raise StageError(f"--inputs: found {found}, needed int8 (N, {', '.join(map(str, shape))}) with N >= 1")
    return inputs
