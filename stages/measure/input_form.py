"""How an image takes its input, from footprint.json: the tensor's own bytes, a picture's, or floats.

The device turns back what is sent into the very tensor that was meant, so that outputs can be compared bit for bit
whatever the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.graph.graph import Graph, Quantisation


@dataclass(frozen=True)
class InputForm:
    """Turns the network's inputs into what a host sends."""

    kind: str  # int8, uint8 or float32 (firmware.input)
    grid: Quantisation

    def sent(self, inputs: np.ndarray) -> np.ndarray:
        """The same values in this form; shapes stay."""
        if self.kind == "uint8":
            return (np.asarray(inputs, np.int8).view(np.uint8) ^ np.uint8(0x80)).reshape(inputs.shape)
        if self.kind == "float32":
            steps = np.asarray(inputs, np.float32) - np.float32(self.grid.zero_point[0])
            return (steps * np.float32(self.grid.scale[0])).astype("<f4")
        return inputs


def input_form(footprint: Mapping[str, Any], graph: Graph) -> InputForm:
    """That of an image."""
    grid = graph.tensors[graph.inputs[0]].quantisation or Quantisation((1.0,), (0,))
    return InputForm(footprint["link"]["input"], grid)
