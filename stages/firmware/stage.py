"""firmware: compile the int8 network to C and link it, with kernels and protocol, for a board and for its twin.

Reads   model (.tflite); dataset (.json) for the settings of a front end
Writes  firmware.elf .bin .hex (the board), twin.elf (QEMU), generated/ (model.c, .h, .S), footprint.json,
        memory.json (the arena as it runs)
Fails   StageError for an operator without a kernel or a network that does not fit, before anything is compiled
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boards import load_board
from pipeline.stage import read_json, stage, write_json
from stages.firmware.config import FirmwareConfig


@dataclass(frozen=True, kw_only=True)
class Firmware:
    """Artifacts."""

    image: Path
    image_bin: Path
    image_hex: Path
    twin: Path
    generated: Path
    footprint: Path
    firmware_memory: Path  # memory.json: where every activation lies, and when; a fused chain is one op


@stage(
    "firmware",
    programs=("arm-none-eabi-gcc",),
    packages=("ai-edge-litert", "capstone", "ortools", "pyelftools"),
    sources=("boards/firmware", "boards/{board}", "boards/virtual"),
)
def run(model: Path, dataset: Path | None, *, config: FirmwareConfig, board: str, out_dir: Path) -> Firmware:
    from stages.firmware.build.image import build_images, write_sources
    from stages.firmware.economy import compile_within
    from stages.firmware.front_end import design_front_end
    from stages.firmware.link_settings import float_end_macros, link_settings
    from stages.firmware.memory.footprint import footprint
    from stages.firmware.memory.regions import place
    from stages.graph.memory.memory_record import memory_record
    from stages.graph.memory.runtime_bound import runtime_bytes
    from stages.graph.simplify.simplification import simplify
    from stages.graph.tflite.float_edges import require_int8, strip_float_edges
    from stages.graph.tflite.reader import read_tflite

    described = load_board(board).at_clock(config.clock)
    given = strip_float_edges(read_tflite(model)).graph
    require_int8(given, model.name)
    graph = simplify(given)
    chains = () if config.fusion == "none" else None  # None: where it pays
    most_bytes = runtime_bytes(given)
    compiled = compile_within(graph, most_bytes, weights=config.weights, runtime=config.runtime, chains=chains)
    settings = {} if dataset is None else read_json(dataset)
    link = link_settings(config, settings, graph, described)
    front_end = None
    if config.front_end != "none":
        front_end = design_front_end(config.front_end, config.stream, settings, graph)
    sent_as_floats = link.input_bytes if config.input == "float32" else 0
    placement = place(compiled, described, front_end, sent_as_floats, copy_weights=config.spare_ram == "weights")
    generated = out_dir / "generated"
    write_sources(compiled, link.model_name, placement, generated, front_end, float_end_macros(graph, link))
    optimise = "Os" if config.weights == "small" else config.optimise
    images = build_images(described, generated, optimise, out_dir, link)
    return Firmware(
        image=images.image,
        image_bin=images.image_bin,
        image_hex=images.image_hex,
        twin=images.twin,
        generated=generated,
        footprint=write_json(
            out_dir / "footprint.json", footprint(compiled, placement, images, described, front_end, link)
        ),
        firmware_memory=write_json(out_dir / "memory.json", memory_record(compiled.graph, compiled.layout)),
    )
