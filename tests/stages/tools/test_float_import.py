"""A float .tflite: every command names the way to int8, and `import` goes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, Tensor
from stages.graph.tflite.float_edges import require_int8
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.tools.keras_import import import_keras
from stages.tools.library import compile_library

QUANTIZER = importlib.util.find_spec("ai_edge_quantizer") is not None


def float_file(folder: Path) -> Path:
    """One convolution and a classifier, in float32."""
    rng = np.random.default_rng(0)

    def stored(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, "float32", data=rng.normal(0, 0.3, shape).astype(np.float32))

    tensors = [Tensor("x", (1, 6, 5, 3), "float32"), stored("w", 4, 3, 3, 3), stored("b", 4)]
    tensors += [
        Tensor("y", (1, 6, 5, 4), "float32"),
        stored("v", 3, 120),
        stored("c", 3),
        Tensor("z", (1, 3), "float32"),
    ]
    ops = (
        Op("CONV_2D", "y", (0, 1, 2), (3,), ConvOptions(activation="relu")),
        Op("FULLY_CONNECTED", "z", (3, 4, 5), (6,), ActivationOptions()),
    )
    path = folder / "float.tflite"
    path.write_bytes(write_tflite(Graph(tuple(tensors), ops, (0,), (6,)), "test"))
    return path


def rows(folder: Path) -> Path:
    np.save(folder / "x.npy", np.random.default_rng(1).normal(0, 1, (20, 6, 5, 3)).astype(np.float32))
    return folder / "x.npy"


def test_other_commands_name_the_way_to_int8(tmp_path: Path) -> None:
    sentence = r"float\.tflite: tensor x is float32, needed a full int8 network, .*; quantise .* pipeline import FLOAT"
    with pytest.raises(StageError, match=sentence):
        compile_library(float_file(tmp_path), tmp_path / "made", "fast", "overlap")


@pytest.mark.skipif(QUANTIZER, reason="ai-edge-quantizer is installed")
def test_without_the_quantiser_import_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(
        StageError, match=r"ai-edge-quantizer is not installed, .*pip install 'tinyml-pipeline\[litert\]'"
    ):
        import_keras(float_file(tmp_path), rows(tmp_path), tmp_path / "out.tflite")


@pytest.mark.skipif(not QUANTIZER, reason="needs the extra litert: pip install 'tinyml-pipeline[litert]'")
def test_a_float_file_becomes_a_full_int8_one_that_is_close(tmp_path: Path) -> None:
    record = import_keras(float_file(tmp_path), rows(tmp_path), tmp_path / "out.tflite").record
    require_int8(read_tflite(tmp_path / "out.tflite"))
    assert record["snr_db"] > 20 and record["class_agreement"] > 0.7
