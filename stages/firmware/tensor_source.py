"""model_tensors.c: where each operator's output lies, for the command `tensor` (boards/firmware/tensor.h)."""

from __future__ import annotations

from stages.firmware.model_source import CompiledModel

_MADE_BY = "Made by stages/firmware/tensor_source.py from a .tflite file; changes here are lost."


def tensor_source(model: CompiledModel) -> str:
    """Offsets count from the network's output, which the model itself hands out."""
    offsets = model.layout.offsets
    origin = offsets[model.graph.outputs[0]]
    places = [
        f"    {{{offsets[op.outputs[0]] - origin}, {model.graph.tensors[op.outputs[0]].nbytes}u}},"
        for op in model.graph.ops
    ]
    table = ["const struct tensor_place TENSOR_PLACES[MODEL_OPS] = {", *places, "};"]
    return "\n".join([f"/* {_MADE_BY} */", '#include "tensor.h"', "", *table, ""])
