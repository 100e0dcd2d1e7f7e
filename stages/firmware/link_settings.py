"""What a host must know to speak with an image: its name, the form of an input, what is answered, the serial rate.

The name is that of MLPerf Tiny's task where the data set is that of one; any other network is `custom`, which no runner
takes for one of its own. Refuses a form of input or an answer that the network cannot have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boards import Board
from pipeline.errors import StageError
from stages.firmware.config import Answer, FirmwareConfig, InputForm, Mode
from stages.graph.graph import Graph, Tensor

CUSTOM = "custom"
TASK_OF_SOURCE = {
    "speech_commands_v0.01": "kws01",
    "speech_commands_v0.02": "kws01",
    "builtin_keywords": "kws01",
    "visual_wake_words": "vww01",
    "cifar10": "ic01",
}
STREAM = "sww01"
_BYTES = {"int8": 1, "uint8": 1, "float32": 4}


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Part of footprint.json."""

    model_name: str
    input: InputForm
    input_bytes: int  # as the host sends it
    answer: Answer
    baud: int  # from the start
    mode: Mode
    clock_hz: int


def link_settings(config: FirmwareConfig, dataset: Mapping[str, Any], graph: Graph, board: Board) -> LinkSettings:
    """For this network on this board."""
    _check(config, graph)
    name = TASK_OF_SOURCE.get(str(dataset.get("source", "")), CUSTOM)
    if config.front_end == "kws_stream" and name == "kws01":
        name = STREAM
    energy = config.mode == "energy"
    return LinkSettings(
        model_name=config.model_name or name,
        input=config.input,
        input_bytes=sum(graph.tensors[index].nbytes for index in graph.inputs) * _BYTES[config.input],
        answer=config.answer,
        baud=board.baud(energy) if energy or config.baud is None else config.baud,
        mode=config.mode,
        clock_hz=board.clock_hz,
    )


def float_end_macros(graph: Graph, settings: LinkSettings) -> str:
    """What model.h says of floats; nothing where none come."""
    if settings.input != "float32":
        return ""
    source, result = (graph.tensors[ends[0]] for ends in (graph.inputs, graph.outputs))
    lines = [
        "/* The host sends float32 (boards/firmware/link/float_end.h). */",
        f"#define MODEL_INPUT_SCALE {_c_float(source)}",
        f"#define MODEL_INPUT_ZERO_POINT ({source.quantisation.zero_point[0] if source.quantisation else 0})",
        f"#define MODEL_OUTPUT_SCALE {_c_float(result)}",
    ]
    lines += ["#define MODEL_ANSWERS_ERROR 1"] if settings.answer == "reconstruction_error" else []
    return "\n".join([*lines, "", ""])


def _c_float(tensor: Tensor) -> str:
    """Single precision, to the last bit."""
    return f"{(tensor.quantisation.scale[0] if tensor.quantisation else 1.0).hex()}f"


def _check(config: FirmwareConfig, graph: Graph) -> None:
    inputs, outputs = ([graph.tensors[index] for index in ends] for ends in (graph.inputs, graph.outputs))
    kinds = ", ".join(tensor.dtype for tensor in inputs)
    if config.input == "uint8" and {tensor.dtype for tensor in inputs} != {"int8"}:
        raise StageError(f"firmware.input: found uint8 for inputs of type {kinds}, needed a network that takes int8")
    if config.input == "float32" and (len(inputs) != 1 or inputs[0].dtype != "int8" or config.front_end != "none"):
        raise StageError(
            f"firmware.input: found float32 for inputs of type {kinds} and front end {config.front_end!r},"
            " needed one input of type int8 and no front end"
        )
    if config.answer == "reconstruction_error":
        sizes = [tensor.elements for tensor in (*inputs[:1], *outputs)]
        fits = len(sizes) == 2 and sizes[0] == sizes[1] and outputs[0].dtype == "int8"
        if config.input != "float32" or not fits:
            raise StageError(
                f"firmware.answer: found reconstruction_error for {config.input} of {sizes[0]} values and outputs of"
                f" {', '.join(map(str, sizes[1:]))}, needed firmware.input=float32 and one int8 output of the same size"
            )
