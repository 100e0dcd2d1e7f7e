"""What the conversion asks of TensorFlow, and what it refuses: with a stand-in that needs no TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.graph.other_formats.keras_conversion import REFUSED, REPRESENTATIVE_ROWS, main


class StandIn(ModuleType):
    """As much of TensorFlow as the conversion uses; the converter writes down what it was given."""

    int8 = "int8"

    def __init__(self, inputs: list[tuple[int | None, ...]], outputs: int = 1, fault: Exception | None = None) -> None:
        super().__init__("tensorflow")
        self.seen: list[list[np.ndarray]] = []
        network = SimpleNamespace(inputs=[SimpleNamespace(shape=shape) for shape in inputs], outputs=[None] * outputs)
        self.converter = SimpleNamespace(target_spec=SimpleNamespace(), convert=self._convert)
        maker = SimpleNamespace(
            from_keras_model=lambda loaded: self.converter, from_saved_model=lambda path: self.converter
        )
        self.lite = SimpleNamespace(
            TFLiteConverter=maker,
            Optimize=SimpleNamespace(DEFAULT="default"),
            OpsSet=SimpleNamespace(TFLITE_BUILTINS_INT8="int8 only"),
        )
        self.keras = SimpleNamespace(models=SimpleNamespace(load_model=lambda path, compile: network))
        self.fault = fault

    def _convert(self) -> bytes:
        if self.fault is not None:
            raise self.fault
        self.seen = list(self.converter.representative_dataset())
        return b"converted"


def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, rows: np.ndarray) -> tuple[int, str]:
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    np.save(tmp_path / "X.npy", rows)
    code = main(tmp_path / "model.keras", tmp_path / "X.npy", tmp_path / "out.tflite")
    refusal = tmp_path / "out.tflite.refused"
    return code, refusal.read_text() if refusal.exists() else ""


def test_the_converter_gets_the_first_rows_one_by_one_and_may_use_int8_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn([(None, 2, 3)])
    rows = np.arange(6.0 * (REPRESENTATIVE_ROWS + 1)).reshape(-1, 2, 3)
    assert convert(tmp_path, monkeypatch, stand_in, rows) == (0, "")
    assert (tmp_path / "out.tflite").read_bytes() == b"converted"
    assert len(stand_in.seen) == REPRESENTATIVE_ROWS == 500
    assert [(len(entry), entry[0].shape, entry[0].dtype) for entry in stand_in.seen[:2]] == [
        (1, (1, 2, 3), "float32")
    ] * 2
    np.testing.assert_array_equal(stand_in.seen[-1][0][0], rows[499])
    converter: Any = stand_in.converter
    assert (converter.optimizations, converter.target_spec.supported_ops) == (["default"], ["int8 only"])
    assert (converter.inference_input_type, converter.inference_output_type) == ("int8", "int8")


@pytest.mark.parametrize(
    ("stand_in", "sentence"),
    [
        (StandIn([(None, 2, 3)] * 2), "found 2 inputs and 1 outputs, needed 1 of each"),
        (StandIn([(None, 2, 3)], 2), "found 1 inputs and 2 outputs, needed 1 of each"),
        (StandIn([(None, None, 3)]), "its input has the open shape (None, 3), needed a fixed one; build it with"),
        (StandIn([(None, 2, 4)]), "the data has shape (5, 2, 3), needed (N, 2, 4)"),
        (StandIn([(None, 2, 3)], fault=ValueError("\n no\nkernel")), "TensorFlow's converter cannot make it int8 (no)"),
        (StandIn([(None, 2, 3)], fault=ValueError()), "TensorFlow's converter cannot make it int8 (ValueError)"),
        (StandIn([(None, 2, 3)], fault=ValueError("x" * 300)), f"cannot make it int8 ({'x' * 200})"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_said_in_a_file_beside(
    stand_in: StandIn, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, refusal = convert(tmp_path, monkeypatch, stand_in, np.zeros((5, 2, 3)))
    assert (code, REFUSED) == (3, 3)
    assert sentence in refusal
