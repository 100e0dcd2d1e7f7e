"""`pipeline import`: other people's models become full-int8 .tflite files that the pipeline optimises and runs.

A float .tflite is quantised by `float_quantisation`. Of a Keras model the following holds.

TensorFlow's converter quantises with a representative set (`keras_conversion`, in a process of its own); the result is
read back, checked and handed to `optimisation`. Needs the extra `tf`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pipeline.errors import StageError, ToolError
from pipeline.stage import Answer
from stages.graph.other_formats import keras_conversion
from stages.graph.other_formats.float_quantisation import quantised_file
from stages.graph.other_formats.keras_conversion import REFUSED, REPRESENTATIVE_ROWS
from stages.graph.tflite.reader import read_tflite
from stages.tools.optimisation import optimize
from stages.tools.output_file import require_file_name, write_atomically

_LIMIT_S = 1800.0  # MobileNet-v2 with 500 rows takes about a minute
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}


def import_keras(model: Path, data: Path, out: Path) -> Answer:
    """Write the int8 model, in its best order and with its arena plan, to `out`."""
    rows = _checked_rows(data)
    if model.suffix == ".tflite" and model.is_file():
        return _import_float(model, rows, out)
    if not model.exists():
        raise StageError(f"{model}: no such file; needed a .keras or .h5 model, or a SavedModel folder")
    if importlib.util.find_spec("tensorflow") is None:
        raise StageError(
            "import: tensorflow is not installed, needed to read Keras models; pip install 'tinyml-pipeline[tf]'"
        )
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "converted.tflite"
        _convert(model, data, converted)
        return accepted(model, converted, min(len(rows), REPRESENTATIVE_ROWS), out)


def _import_float(model: Path, rows: np.ndarray, out: Path) -> Answer:
    require_file_name(out)
    found = quantised_file(model, rows)
    write_atomically(out, found.content)
    text = f"{model} -> {out}: {found.ops} int8 ops, {len(found.content):,} B (float: {model.stat().st_size:,} B)\n"
    text += f"outputs over {found.rows} rows: {found.snr_db:.1f} dB above their error, "
    text += f"the same class for {found.class_agreement:.1%}"
    record = {"rows": found.rows, "ops": found.ops, "size_bytes": len(found.content)}
    return Answer(text, {**record, "snr_db": found.snr_db, "class_agreement": found.class_agreement})


def accepted(model: Path, converted: Path, representative_inputs: int, out: Path) -> Answer:
    """What the converter made of `model`, checked and optimised."""
    try:
        graph = read_tflite(converted)
        floating = [op for op in graph.ops if graph.tensors[op.outputs[0]].dtype != "int8"]
        if floating:
            kind = graph.tensors[floating[0].outputs[0]].dtype
            raise StageError(f"{model}: {floating[0].kind} {floating[0].name} stays {kind}, needed int8 throughout")
        optimised = optimize(converted, out)
    except StageError as error:  # it knows the file by a name that nobody gave
        raise StageError(str(error).replace(str(converted), str(model))) from error
    source = graph.tensors[graph.inputs[0]]
    text = f"{model}: converted with {representative_inputs} representative inputs, {len(graph.ops)} int8 ops\n"
    text += optimised.text.replace(str(converted), str(model))
    record = {"representative_inputs": representative_inputs, "input_shape": list(source.shape)}
    return Answer(text, {**record, "optimized": optimised.record})


def _checked_rows(data: Path) -> np.ndarray:
    try:
        rows = np.load(data, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StageError(f"{data}: cannot be read ({error}); needed a .npy file, one input per row") from error
    if not isinstance(rows, np.ndarray) or rows.ndim < 2 or len(rows) == 0 or rows.dtype.kind not in "fiu":
        found = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else "an archive"
        raise StageError(f"{data}: found {found}, needed numbers of shape (N, ...), one input per row")
    return rows


def _convert(model: Path, data: Path, converted: Path) -> None:
    program = Path(keras_conversion.__file__)
    # -P: our folder has modules named like others' (graph, padding), which must not be found first.
    argv = [sys.executable, "-P", str(program), str(model.resolve()), str(data.resolve()), str(converted)]
    try:
        done = subprocess.run(
            argv, env={**os.environ, **_QUIET}, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, _LIMIT_S) from error
    if done.returncode == REFUSED:
        refusal = converted.with_name(converted.name + ".refused").read_text()
        raise StageError(f"{model}: {refusal}")
    if done.returncode != 0:
        raise ToolError.failed(argv, done.returncode, done.stderr)
