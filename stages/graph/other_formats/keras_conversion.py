"""A program, not a library: Keras model + representative inputs -> full-int8 .tflite, by TensorFlow's own converter.

    python keras_conversion.py MODEL X.npy OUT.tflite

TensorFlow takes seconds to import and writes to both output streams, hence a process of its own. It imports nothing of
ours. What it refuses it says in one sentence in OUT.tflite.refused, and ends with code 3.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

REFUSED = 3
REPRESENTATIVE_ROWS = 500  # more hardly move a range


class Refusal(Exception):
    """Why the model or the data cannot be used."""


def main(model: Path, data: Path, out: Path) -> int:
    try:
        rows = np.load(data, mmap_mode="r", allow_pickle=False)[:REPRESENTATIVE_ROWS]
        out.write_bytes(converted(model, np.asarray(rows, np.float32)))
    except Refusal as refusal:
        out.with_name(out.name + ".refused").write_text(str(refusal))
        return REFUSED
    return 0


def converted(model: Path, rows: np.ndarray) -> bytes:
    """The int8 model; inputs and outputs are int8 too."""
    import tensorflow as tf

    converter = _converter(tf, model, rows)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: _one_by_one(rows)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    try:
        return bytes(converter.convert())
    except Exception as error:
        raise Refusal(f"TensorFlow's converter cannot make it int8 ({_first_line(error)})") from error


def _converter(tf: Any, model: Path, rows: np.ndarray) -> Any:
    if model.is_dir():
        try:
            return tf.lite.TFLiteConverter.from_saved_model(str(model))
        except Exception as error:
            raise Refusal(f"not a readable SavedModel ({_first_line(error)})") from error
    try:
        loaded = tf.keras.models.load_model(model, compile=False)
    except Exception as error:
        raise Refusal(f"not a readable Keras model ({_first_line(error)})") from error
    if len(loaded.inputs) != 1 or len(loaded.outputs) != 1:
        found = f"{len(loaded.inputs)} inputs and {len(loaded.outputs)} outputs"
        raise Refusal(f"found {found}, needed 1 of each")
    wanted = tuple(loaded.inputs[0].shape)[1:]
    if None in wanted:
        raise Refusal(f"its input has the open shape {wanted}, needed a fixed one; build it with Input(shape=...)")
    if rows.shape[1:] != wanted:
        raise Refusal(f"the data has shape {rows.shape}, needed (N, {', '.join(map(str, wanted))})")
    return tf.lite.TFLiteConverter.from_keras_model(loaded)


def _one_by_one(rows: np.ndarray) -> Iterator[list[np.ndarray]]:
    for row in rows:
        yield [row[np.newaxis]]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))
