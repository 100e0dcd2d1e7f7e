"""How much of each memory an image takes, read from its ELF sections."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from boards import Board
from stages.firmware.front_end import FrontEnd, Stream
from stages.firmware.image import Images, Placement
from stages.firmware.model_source import CompiledModel


@dataclass(frozen=True)
class Region:
    """One memory of the board."""

    used_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class OpKernel:
    """Which kernel runs an operator."""

    index: int
    kind: str
    name: str
    kernel: str
    arena_live_bytes: int


@dataclass(frozen=True, kw_only=True)
class FrontEndUse:
    """What the front end wants and takes; of a stream also how it decides."""

    kind: str
    sample_rate_hz: int
    clip_samples: int
    hop_samples: int
    window_samples: int
    frames: int
    coefficients: int
    constant_bytes: int
    ram_bytes: int
    stream: Stream | None


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """footprint.json"""

    board: str
    build_id: str
    compiler: str
    flash_bytes: int
    ram_bytes: int  # stack and input buffer included
    arena_bytes: int
    arena_region: str
    scratch_bytes: int
    input_bytes: int
    weights_bytes: int  # int8 weights and int32 biases, as the resource model counts them
    constant_bytes: int  # the same as stored: packed, with scaling and parameters
    regions: dict[str, Region]
    sections: dict[str, int]
    ops: tuple[OpKernel, ...]
    front_end: FrontEndUse | None


def footprint(
    model: CompiledModel, placement: Placement, images: Images, board: Board, front_end: FrontEnd | None = None
) -> Footprint:
    """The footprint of the board's own image."""
    sections, used = _sections(images.image, board)
    return Footprint(
        board=board.name,
        build_id=images.build_id,
        compiler=images.compiler,
        flash_bytes=used["flash"],
        ram_bytes=sum(count for region, count in used.items() if region != "flash"),
        arena_bytes=model.layout.arena_bytes,
        arena_region=placement.region,
        scratch_bytes=model.scratch_bytes,
        input_bytes=model.input.nbytes,
        weights_bytes=model.weights_bytes,
        constant_bytes=model.constant_bytes,
        regions={name: Region(used[name], memory.size) for name, memory in board.memories.items()},
        sections=sections,
        ops=tuple(
            OpKernel(index, op.kind, op.name, call.kernel, live)
            for index, (op, call, live) in enumerate(
                zip(model.graph.ops, model.calls, model.layout.live_bytes, strict=True)
            )
        ),
        front_end=front_end and front_end_use(front_end),
    )


def front_end_use(front_end: FrontEnd) -> FrontEndUse:
    """What a host must know of a front end to speak with it."""
    return FrontEndUse(
        kind=front_end.kind,
        sample_rate_hz=front_end.sample_rate_hz,
        clip_samples=front_end.clip_samples,
        hop_samples=front_end.hop_samples,
        window_samples=front_end.window_samples,
        frames=front_end.frames,
        coefficients=front_end.coefficients,
        constant_bytes=front_end.constant_bytes,
        ram_bytes=front_end.fast_bytes + front_end.bulk_bytes,
        stream=front_end.stream,
    )


def _sections(image: Path, board: Board) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes per section, and per region of the board; initialised data count in flash as well."""
    sections: dict[str, int] = {}
    used = dict.fromkeys(board.memories, 0)
    with image.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            size = section["sh_size"]
            if not section["sh_flags"] & SH_FLAGS.SHF_ALLOC or size == 0:
                continue
            sections[section.name] = size
            region = _region(section["sh_addr"], board)
            used[region] += size
            if region != "flash" and section["sh_type"] != "SHT_NOBITS":
                used["flash"] += size
    return sections, used


def _region(address: int, board: Board) -> str:
    return next(n for n, memory in board.memories.items() if memory.origin <= address < memory.origin + memory.size)
