"""The float network by somebody else's converter: litert-torch (once ai-edge-torch), the extra `litert`.

A second opinion on `from_torch`: padding, batch normalisation and layout are translated by other people's code, run by
LiteRT's reference kernels, and must give what our Graph gives. The converter prints a lot and warns; both are kept off
the terminal.
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
from stages.graph.float_reference import run_float
from stages.graph.graph import Graph

_TOLERANCE = 1e-3  # of the largest output; single precision, other order of sums: 1e-5 is usual


@dataclass(frozen=True)
class FloatCheck:
    """How far the two float networks are apart."""

    max_abs_difference: float
    largest_output: float
    n: int

    @property
    def sentence(self) -> str:
        return f"litert differs by up to {self.max_abs_difference:.2g} of {self.largest_output:.3g}"


def check_float_graph(network: nn.Module, graph: Graph, inputs: np.ndarray) -> FloatCheck:
    """Compare `graph` with litert-torch's conversion of `network` on inputs (N, H, W, C), before any softmax."""
    model = litert_model(network, inputs.shape[1:])
    last = graph.ops[-1]
    logits = last.inputs[0] if last.kind == "SOFTMAX" else graph.outputs[0]
    ours = run_float(graph, inputs)[logits].reshape(len(inputs), -1)
    theirs = run_litert(model, inputs)
    found = FloatCheck(float(np.abs(ours - theirs).max()), float(np.abs(theirs).max()), len(inputs))
    if not found.max_abs_difference <= _TOLERANCE * max(found.largest_output, 1e-6):
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


def run_litert(model: bytes, inputs: np.ndarray) -> np.ndarray:
    """(N, outputs) by LiteRT's reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter: Any = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    source, result = (
        details[0]["index"] for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )
    rows = []
    for x in inputs:
        interpreter.set_tensor(source, np.ascontiguousarray(x.transpose(2, 0, 1)[np.newaxis], np.float32))
        interpreter.invoke()
        rows.append(interpreter.get_tensor(result).reshape(-1))
    return np.stack(rows)


@contextlib.contextmanager
def _silence():  # type: ignore[no-untyped-def]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
