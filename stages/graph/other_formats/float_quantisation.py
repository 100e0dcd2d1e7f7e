"""A float .tflite becomes an int8 one by ai-edge-quantizer (the extra `litert`).

Weights get one scale for each channel, activations their ranges from the rows of `--data`. What comes out is read back
and compared with the float network on those rows, by LiteRT's reference kernels: how far the outputs are apart, as the
signal to noise ratio, and how often both choose the same class.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import StageError
from stages.graph.tflite.float_edges import require_int8
from stages.graph.tflite.planned_file import without_float_edges
from stages.graph.tflite.reader import read_tflite

_MOST_ROWS = 500  # more do not move a range any further
_LEAST_SNR_DB = 3.0  # below it the int8 network is another one


@dataclass(frozen=True)
class QuantisedFile:
    """The int8 network, and how close it is to the float one."""

    content: bytes
    rows: int
    ops: int
    snr_db: float
    class_agreement: float


def quantised_file(model: Path, rows: np.ndarray) -> QuantisedFile:
    """The int8 network of a float file; refuses one that is another network then."""
    if importlib.util.find_spec("ai_edge_quantizer") is None:
        needed = "needed to quantise a float .tflite; pip install 'tinyml-pipeline[litert]'"
        raise StageError(f"import: ai-edge-quantizer is not installed, {needed}")
    content, given = model.read_bytes(), np.asarray(rows[:_MOST_ROWS], np.float32)
    quantised = _quantised(model, content, given)
    int8 = without_float_edges(quantised, name=model.name)
    graph = read_tflite(int8, name=model.name)
    require_int8(graph, model.name)
    before, after = (_outputs(each, given) for each in (content, quantised))
    noise = float(np.mean((before - after) ** 2)) or 1e-30
    snr_db = 10 * math.log10(float(np.mean(before**2)) / noise + 1e-30)
    if snr_db < _LEAST_SNR_DB:
        raise StageError(
            f"{model}: the int8 outputs are {snr_db:.1f} dB above their error, needed {_LEAST_SNR_DB:g} dB; "
            "are the rows of --data what the network really gets?"
        )
    agreement = float(np.mean(before.argmax(1) == after.argmax(1)))
    return QuantisedFile(int8, len(given), len(graph.ops), round(snr_db, 2), agreement)


def _quantised(model: Path, content: bytes, rows: np.ndarray) -> bytes:
    from ai_edge_quantizer import quantizer, recipe

    try:
        tool: Any = quantizer.Quantizer(bytearray(content), recipe.static_wi8_ai8())
        ((name, signature),) = _interpreter(content).get_signature_list().items()
        (entry,) = signature["inputs"]
        shape = _interpreter(content).get_input_details()[0]["shape"]
        samples = [{entry: row.reshape(shape)} for row in rows]
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it saved
            return bytes(tool.quantize(tool.calibrate({name: samples})).quantized_model)
    except Exception as error:  # whatever the tool raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StageError(f"{model}: ai-edge-quantizer cannot quantise it ({reason}); one input is needed") from error


def _outputs(content: bytes, rows: np.ndarray) -> np.ndarray:
    interpreter = _interpreter(content)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    found = []
    for row in rows:
        interpreter.set_tensor(source["index"], _on_grid(row.reshape(source["shape"]), source))
        interpreter.invoke()
        found.append(_real(interpreter.get_tensor(result["index"]), result).reshape(-1))
    return np.stack(found)


def _interpreter(content: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)


def _on_grid(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    if details["dtype"] == np.float32:
        return values
    return np.clip(np.rint(values / scale) + zero_point, -128, 127).astype(details["dtype"])


def _real(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    return values if details["dtype"] == np.float32 else (values.astype(np.float32) - zero_point) * scale
