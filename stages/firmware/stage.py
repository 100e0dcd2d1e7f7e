"""firmware: compile the int8 network to C and link it, with kernels and protocol, for a board and for its twin.

Reads   model (.tflite)
Writes  firmware.elf .bin .hex (the board), twin.elf (QEMU), generated/ (model.c, .h, .S), footprint.json
Fails   StageError for an operator without a kernel or a network that does not fit, before anything is compiled
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from boards import load_board
from pipeline.stage import Config, stage, write_json


class FirmwareConfig(Config):
    """Section `firmware` of the configuration."""

    # What the device answers to `profile`; the MLPerf Tiny runner chooses its inputs by it.
    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] = "kws01"
    optimise: Literal["O2", "O3", "Os"] = "O3"  # the kernels' loops gain, the rest is small
    # fast: weights as int16, ready for the multiplier; small: as int8, some 10 % slower, half the flash.
    weights: Literal["fast", "small"] = "fast"


@dataclass(frozen=True, kw_only=True)
class Firmware:
    """Artifacts."""

    image: Path
    image_bin: Path
    image_hex: Path
    twin: Path
    generated: Path
    footprint: Path


@stage(
    "firmware",
    programs=("arm-none-eabi-gcc",),
    packages=("ai-edge-litert", "pyelftools"),
    sources=("boards/firmware", "boards/{board}", "boards/virtual"),
)
def run(model: Path, *, config: FirmwareConfig, board: str, out_dir: Path) -> Firmware:
    from stages.firmware.footprint import footprint
    from stages.firmware.image import build_images, place_arena, write_sources
    from stages.firmware.model_source import compile_model
    from stages.graph.arena_layout import arena_layout
    from stages.graph.tflite_reader import read_tflite

    described = load_board(board)
    graph = read_tflite(model)
    compiled = compile_model(graph, arena_layout(graph), config.weights)
    placement = place_arena(compiled, described)
    generated = out_dir / "generated"
    write_sources(compiled, config.model_name, placement, generated)
    images = build_images(described, generated, config.optimise, out_dir)
    return Firmware(
        image=images.image,
        image_bin=images.image_bin,
        image_hex=images.image_hex,
        twin=images.twin,
        generated=generated,
        footprint=write_json(out_dir / "footprint.json", footprint(compiled, placement, images, described)),
    )
