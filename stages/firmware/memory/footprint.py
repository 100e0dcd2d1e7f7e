"""How much of each memory an image takes, read from its ELF sections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from boards import Board
from pipeline.errors import StageError
from stages.firmware.build.image import Images
from stages.firmware.front_end import FrontEnd, Stream
from stages.firmware.link_settings import LinkSettings
from stages.firmware.memory.regions import SHORT_OUTPUT_BYTES
from stages.firmware.memory.stack_depth import StackBound, reserved_stack_bytes, stack_bound
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_STACK, _DATA = ".stack", ".data"  # boards/firmware/core/sections.ld


@dataclass(frozen=True)
class Region:
    """One memory of the board."""

    used_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Part:
    """Something of the network or of the firmware, and the memory that holds it."""

    region: str
    what: str
    size_bytes: int


@dataclass(frozen=True)
class OpKernel:
    """Which kernel runs an operator."""

    index: int
    kind: str
    name: str
    kernel: str
    arena_live_bytes: int
    ops: tuple[int, ...]  # of the network: several, where they are fused


@dataclass(frozen=True, kw_only=True)
class FrontEndUse:
    """What the front end wants and takes; of a stream also how it decides."""

    kind: str
    features: str  # mfcc or log_mel
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
    ram_bytes: int  # stack and input buffer included; copies of weights, which only fill what is left, are not
    ram_weights_bytes: int  # weights that are copied to the preferred RAM
    runtime: str  # classic or overlap
    arena_bytes: int
    arena_lower_bound_bytes: int  # no layout of this runtime can be smaller
    arena_region: str  # of its first part, if it has two
    scratch_bytes: int
    input_bytes: int
    weights_bytes: int  # int8 weights and int32 biases, as the resource model counts them
    constant_bytes: int  # the same as stored: packed, with scaling and parameters
    stack_bytes: int  # reserved
    stack: StackBound  # what it can take at most
    stack_twin: StackBound  # and on the twin
    regions: dict[str, Region]
    placed: tuple[Part, ...]
    sections: dict[str, int]
    ops: tuple[OpKernel, ...]
    front_end: FrontEndUse | None
    link: LinkSettings | None  # None: an image of a first day


def footprint(
    model: CompiledModel,
    placement: Placement,
    images: Images,
    board: Board,
    front_end: FrontEnd | None,
    link: LinkSettings | None = None,
) -> Footprint:
    """The footprint of the board's own image."""
    sections, used = section_bytes(images.image, board)
    bound = stack_bound(images.image, model.assembly)
    reserved = reserved_stack_bytes(images.image)
    if bound.image_bytes > reserved:
        found = f"the stack may take {bound.image_bytes} B, {reserved} B are reserved"
        raise StageError(f"firmware: {found}; raise STACK_BYTES in boards/firmware/core/sections.ld")
    copied = sections.get(_DATA, 0) if placement.ram_weights else 0  # the firmware has no other initialised data
    spill = placement.spill
    return Footprint(
        board=board.name,
        build_id=images.build_id,
        compiler=images.compiler,
        flash_bytes=used["flash"],
        ram_bytes=sum(count for region, count in used.items() if region != "flash") - copied,
        ram_weights_bytes=copied,
        runtime=model.runtime,
        arena_bytes=spill.first_bytes + spill.second_bytes if spill else model.layout.arena_bytes,
        arena_lower_bound_bytes=model.layout.lower_bound_bytes,
        arena_region=placement.region,
        scratch_bytes=model.scratch_bytes,
        input_bytes=model.input_bytes,
        weights_bytes=model.weights_bytes,
        constant_bytes=model.constant_bytes,
        stack_bytes=reserved,
        stack=bound,
        stack_twin=stack_bound(images.twin, model.assembly),
        regions={name: Region(used[name], memory.size) for name, memory in board.memories.items()},
        placed=tuple(_parts(model, placement, board, sections, link)),
        sections=sections,
        ops=tuple(
            OpKernel(index, op.kind, op.name, call.kernel, live, numbers)
            for index, (op, call, live, numbers) in enumerate(
                zip(model.graph.ops, model.calls, model.layout.live_bytes, model.numbers, strict=True)
            )
        ),
        front_end=front_end and front_end_use(front_end),
        link=link,
    )


def _parts(
    model: CompiledModel, placement: Placement, board: Board, sections: dict[str, int], link: LinkSettings | None
) -> Iterator[Part]:
    """What lies where; the rest of each region's use is the front end's and the firmware's."""
    fast, bulk = board.arena_regions
    yield Part(fast, "stack", sections[_STACK])
    yield Part(fast, "variables", sections.get(".bss", 0))
    spill = placement.spill
    if spill is None:
        yield Part(placement.region, "arena", model.layout.arena_bytes)
    else:
        for region, size, tensors in (
            (placement.region, spill.first_bytes, spill.first),
            (spill.region, spill.second_bytes, spill.second),
        ):
            names = ", ".join(model.graph.tensors[tensor].name for tensor in tensors)
            yield Part(region, f"arena: {names}", size)
    in_fast = (placement.scratch_macro or placement.macro) == "PLACE_FAST"
    for what, size in (("scratch", model.scratch_bytes), ("state", model.state_bytes)):
        if size:
            yield Part(fast if in_fast else bulk, what, size)
    yield Part(bulk, "input", model.input_bytes)
    if link is not None and link.input == "float32":
        yield Part(bulk, "input as sent", link.input_bytes)
    if model.output_bytes > SHORT_OUTPUT_BYTES:
        yield Part(bulk, "output", model.output_bytes)
    for index, (op, call) in enumerate(zip(model.graph.ops, model.calls, strict=True)):
        if call.constant_bytes:
            where = fast if index in placement.ram_weights else "flash"
            yield Part(where, f"constants of {index} {op.kind} {op.name}", call.constant_bytes)


def front_end_use(front_end: FrontEnd) -> FrontEndUse:
    """What a host must know of a front end to speak with it."""
    return FrontEndUse(
        kind=front_end.kind,
        features=front_end.features,
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


def section_bytes(image: Path, board: Board) -> tuple[dict[str, int], dict[str, int]]:
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
