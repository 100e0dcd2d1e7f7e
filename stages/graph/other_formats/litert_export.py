"""The network by somebody else's converter and quantiser: litert-torch (once ai-edge-torch), the extra `litert`.

A second opinion on `from_torch`: padding, batch normalisation and layout are translated by other people's code, run by
LiteRT's reference kernels, and must give what our Graph gives. Then ai-edge-quantizer makes its own int8 network of
that, after training: how often it chooses another class than the float one tells whether QAT was worth it. Both tools
print a lot and warn; that is kept off the terminal.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline.errors import StageError
from stages.graph.arithmetic.float_reference import run_float
from stages.graph.graph import Graph

_TOLERANCE = 1e-3  # of the largest output; single precision, other order of sums: 1e-5 is usual


@dataclass(frozen=True)
class FloatCheck:
    """How far the two float networks are apart, and what LiteRT's int8 makes of it."""

    max_abs_difference: float
    largest_output: float
    n: int
    ptq_agreement: (
        float  # share of the inputs in whose class ai-edge-quantizer's int8 network agrees with the float one
    )

    @property
    def sentence(self) -> str:
        return f"litert differs by up to {self.max_abs_difference:.2g} of {self.largest_output:.3g}"

    @property
    def agrees(self) -> bool:
        return self.max_abs_difference <= _TOLERANCE * max(self.largest_output, 1e-6)


def check_float_graph(network: nn.Module, graph: Graph, inputs: np.ndarray, calibration: np.ndarray) -> FloatCheck:
    """Compare `graph` with litert-torch's conversion of `network` on inputs (N, H, W, C), before any softmax."""
    model = litert_model(network, inputs.shape[1:])
    last = graph.ops[-1]
    logits = last.inputs[0] if last.kind == "SOFTMAX" else graph.outputs[0]
    ours = run_float(graph, inputs)[logits].reshape(len(inputs), -1)
    theirs = run_litert(model, inputs)
    in_int8 = run_litert(quantised_after_training(model, calibration), inputs)
    found = FloatCheck(
        max_abs_difference=float(np.abs(ours - theirs).max()),
        largest_output=float(np.abs(theirs).max()),
        n=len(inputs),
        ptq_agreement=float((in_int8.argmax(1) == theirs.argmax(1)).mean()),
    )
    if not found.agrees:
        raise StageError(
            f"export: {found.sentence} from our float graph, needed {_TOLERANCE:g} of that or less; "
            "one of the two translates a layer wrongly"
        )
    return found


def litert_model(network: nn.Module, input_shape: tuple[int, ...]) -> bytes:
    """The network as a float .tflite (NCHW, as torch has it)."""
    if importlib.util.find_spec("litert_torch") is None:
        raise StageError(
            "export: exporter 'litert' needs litert-torch, which is not installed; "
            "pip install 'tinyml-pipeline[litert]'"
        )
    height, width, channels = input_shape
    sample = torch.zeros(1, channels, height, width)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _silence():
        warnings.simplefilter("ignore")
        import litert_torch

        path = Path(folder) / "float.tflite"
        try:
            litert_torch.convert(network.eval(), (sample,)).export(str(path))
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise StageError(
                f"export: litert-torch cannot convert the network ({reason}); use exporter 'own'"
            ) from error
        return path.read_bytes()


def quantised_after_training(model: bytes, calibration: np.ndarray) -> bytes:
    """ai-edge-quantizer's full int8 network of a float one, its ranges from inputs (N, H, W, C)."""
    with warnings.catch_warnings(), _silence():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import quantizer, recipe

        tool: Any = quantizer.Quantizer(bytearray(model), recipe.static_wi8_ai8())
        ((name, signature),) = _interpreter(model).get_signature_list().items()
        rows = [{signature["inputs"][0]: _nchw(x)} for x in calibration]
        return bytes(tool.quantize(tool.calibrate({name: rows})).quantized_model)


def run_litert(model: bytes, inputs: np.ndarray) -> np.ndarray:
    """(N, outputs) as real numbers, by LiteRT's reference kernels."""
    interpreter = _interpreter(model)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    rows = []
    for x in inputs:
        interpreter.set_tensor(source["index"], _on_grid(_nchw(x), source))
        interpreter.invoke()
        rows.append(_real(interpreter.get_tensor(result["index"]), result).reshape(-1))
    return np.stack(rows)


def _interpreter(model: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)


def _nchw(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(2, 0, 1)[np.newaxis], np.float32)


def _on_grid(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    return values if not scale else np.clip(np.rint(values / scale) + zero_point, -128, 127).astype(np.int8)


def _real(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    return values if not scale else (values.astype(np.float32) - zero_point) * scale


@contextlib.contextmanager
def _silence():  # type: ignore[no-untyped-def]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
