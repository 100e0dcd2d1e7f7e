"""The golden inputs and outputs, and the comparison that allows not one bit of difference."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import StageError


@dataclass(frozen=True, eq=False)
class Golden:
    """Inputs of the network, and what TensorFlow Lite Micro computes for them; first axis: which input.

    Of several inputs or outputs, the bytes one behind the other. A network with a state gets each input `runs` times,
    beginning with its first state, and the last output counts.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    runs: int = 1
    sent: np.ndarray | None = None  # the inputs in the form that the firmware takes, where that is another one

    def bytes_of(self, index: int) -> bytes:
        """What a host sends for this input."""
        return (self.inputs if self.sent is None else self.sent)[index].tobytes()


def read_golden(path: Path, as_sent: Callable[[np.ndarray], np.ndarray] | None = None) -> Golden:
    """Read golden.npz; `as_sent` turns the inputs into what the firmware takes."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            runs = int(stored["runs"]) if "runs" in stored.files else 1
            inputs, outputs = (np.ascontiguousarray(stored[name]) for name in ("inputs", "outputs"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise StageError(f"{path.name}: no readable golden values ({error}); run the export step again") from error
    if len(inputs) == 0 or len(inputs) != len(outputs):
        found = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise StageError(f"{path.name}: found {found}, needed as many of each, at least one; run the export step again")
    return Golden(inputs, outputs, runs, None if as_sent is None else as_sent(inputs))


def check_output(index: int, device: bytes, expected: np.ndarray, where: str) -> np.ndarray:
    """The device's output as an array like the expected one, which it must equal bit for bit."""
    wanted = expected.tobytes()
    if device != wanted:
        where_not = next((at for at, pair in enumerate(zip(device, wanted, strict=False)) if pair[0] != pair[1]), None)
        if where_not is None:
            raise StageError(f"{where}: output of golden input {index} has {len(device)} B, needed {len(wanted)} B")
        raise StageError(
            f"{where}: output of golden input {index} differs first at byte {where_not}: {device[where_not]:#04x},"
            f" needed {wanted[where_not]:#04x} as TensorFlow Lite Micro computes; do not use this image"
        )
    return np.frombuffer(device, dtype=expected.dtype).reshape(expected.shape)


def write_outputs(path: Path, golden: Golden, outputs: np.ndarray) -> Path:
    """Write what went in, in the form that it was sent in, and what came out."""
    np.savez(path, inputs=golden.inputs if golden.sent is None else golden.sent, outputs=outputs)
    return path
