"""The trial network in images of a first day: internal clock alone, full clock, then caches and MPU as well."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

from boards import Board
from hil.virtual.program import read_program
from stages.firmware.build.image import Images, build_images, write_sources
from stages.firmware.fast.dot import Weights
from stages.firmware.memory.footprint import footprint
from stages.firmware.memory.regions import place
from stages.firmware.model_source import compile_model
from stages.graph.simplify.simplification import simplify
from stages.tools.bringup.checks import Expected
from stages.tools.bringup.trial_network import trial_inputs, trial_network

STAGES = (1, 2, 3)
# Each image has kernels of another kind, so that all of them are compared: portable C, int8 weights, int16 weights.
KERNELS: dict[int, Weights | None] = {1: None, 2: "small", 3: "fast"}
_INPUTS = 2


@dataclass(frozen=True)
class Trial:
    """What was built: an image for each stage, and what to expect of it."""

    images: dict[int, Images]
    expected: dict[int, Expected]


def build_trial(board: Board, folder: Path, stages: tuple[int, ...] = STAGES) -> Trial:
    """The trial network in an image for each stage."""
    graph = simplify(trial_network())
    images, expected = {}, {}
    for stage in stages:
        compiled = compile_model(graph, weights=KERNELS[stage])
        placement = place(compiled, board, None, copy_weights=False)
        out = folder / f"stage{stage}"
        shutil.rmtree(out, ignore_errors=True)
        write_sources(compiled, "trial", placement, out / "generated")
        built = build_images(board, out / "generated", "O2", out, bringup_stage=stage)
        facts = footprint(compiled, placement, built, board, None)
        images[stage] = built
        bound = max(facts.stack.image_bytes, facts.stack_twin.image_bytes)
        expected[stage] = Expected(
            board=board,
            graph=graph,
            kernels=[{"ops": op.ops, "kind": op.kind, "kernel": op.kernel} for op in facts.ops],
            stack_bound_bytes=bound,
            flash_crc=lambda first, size, image=built: _image_crc(image, first, size),
            inputs=trial_inputs(_INPUTS),
        )
    return Trial(images, expected)


def _image_crc(images: Images, first: int, size: int) -> int:
    """Of what lies there, on the board or on its twin: their addresses do not overlap."""
    for path in (images.image, images.twin):
        found = read_program(path).code_at(first, size)
        if len(found) == size:
            return zlib.crc32(found)
    return 0
