"""Which region of a board holds what: the tightly coupled memory goes to what gains most from it, byte for byte.

Tightly coupled memory costs no cache line fills. What a tensor in the larger RAM costs an inference is one fill and one
write-back of its lines when it is written and one fill for each op that reads it; what weights in flash cost is one
fill of their lines, or one for each pass over them where they outgrow the data cache. The costs of a line are the
board's own (board.yaml).

First come stack, variables and scratch memory, which is used in every inner loop; then the arena, if the whole of it
fits. If not, its tensors are taken in the order of their gain per byte as long as they can be packed into what is left,
and the others form a second arena in the larger RAM. What is left after that is filled with copies of weights. Refuses
a network that does not fit either way, before anything is compiled.
"""

from __future__ import annotations

from dataclasses import replace

from boards import Board, Memory
from pipeline.errors import StageError
from stages.firmware.front_end import FrontEnd
from stages.firmware.kernels.access_order import WHOLE, laid_out
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement, Spill
from stages.graph.graph import WEIGHTED
from stages.graph.memory.arena_layout import Distances, Place, arena_places, pack
from stages.graph.memory.fusion import FusedOptions

CODE_BYTES = 24 * 1024  # everything in flash that is not the network's and no table: 12 KB measured, 17 with a stream
VARIABLE_BYTES = 8 * 1024  # in the preferred RAM beside the arena: 4 KB of stack, some 2 KB of variables
SHORT_OUTPUT_BYTES = 1024  # boards/firmware/link/bench.c: a longer one lies in the larger RAM
_COUNTED_OPS = 64  # are in VARIABLE_BYTES and CODE_BYTES
MARK_BYTES = 12  # boards/firmware/core/prof.c
_CALL_BYTES = 96  # of code and tables, at most: the mark, the call and the output's place
_WIDE_WEIGHTS = ("fast_conv_2d", "fast_depthwise", "fast_matrix", "fast_vector")  # kernels of int16 weights
_PLACED = 32  # alignment in boards/firmware/core/placement.h
_FAST, _BULK = "PLACE_FAST", "PLACE_BULK"


def place(
    model: CompiledModel,
    board: Board,
    front_end: FrontEnd | None = None,
    float_bytes: int = 0,
    *,
    copy_weights: bool = True,
) -> Placement:
    """Choose a region for every part of the network; `copy_weights`: fill what is left with weights.

    `float_bytes`: of an input that comes in floats, which lie beside what they are quantised to.
    """
    _check_flash(model, board, front_end)
    fast, bulk = (board.memories[region] for region in board.arena_regions)
    room = fast.size - _variable_bytes(model) - (front_end.fast_bytes if front_end else 0) - _working_bytes(model)
    # In the larger RAM in any case:
    beside = beside_bytes(model) + _placed(float_bytes) + (front_end.bulk_bytes if front_end else 0)
    placement = _place_arena(model, board, room, bulk.size - beside)
    if placement is None:
        raise _does_not_fit(model, board, beside, room)
    taken = placement.spill.first_bytes if placement.spill else model.layout.arena_bytes
    left = room - (taken if placement.macro == _FAST else 0)
    return replace(placement, ram_weights=_hot_weights(model, board, placement, left)) if copy_weights else placement


def _working_bytes(model: CompiledModel) -> int:
    """Scratch memory and states, which lie together."""
    return _placed(model.scratch_bytes) + model.state_bytes if model.state_bytes else model.scratch_bytes


def _placed(size_bytes: int) -> int:
    """With what its alignment may cost."""
    return -(-size_bytes // _PLACED) * _PLACED


def _variable_bytes(model: CompiledModel) -> int:
    """The firmware's own variables, with two numbers for each operator's mark."""
    return VARIABLE_BYTES + MARK_BYTES * max(0, len(model.calls) - _COUNTED_OPS)


def beside_bytes(model: CompiledModel) -> int:
    """Buffers of the link, in the larger RAM: the input, and an output too long for the variables."""
    is_long = model.output_bytes > SHORT_OUTPUT_BYTES
    return model.input_bytes + (_placed(model.output_bytes) if is_long else 0)


def _place_arena(model: CompiledModel, board: Board, room: int, bulk_room: int) -> Placement | None:
    fast, bulk = board.arena_regions
    arena_bytes = model.layout.arena_bytes
    if arena_bytes <= room and bulk_room >= 0:
        return Placement(region=fast, macro=_FAST)
    spill = _spilled(model, board, room) if room > 0 else None
    if spill is not None and spill.second_bytes <= bulk_room:
        return Placement(region=fast, macro=_FAST, spill=spill)
    if room >= 0 and arena_bytes <= bulk_room:
        return Placement(region=bulk, macro=_BULK, scratch_macro=_FAST)
    if arena_bytes + _working_bytes(model) <= bulk_room:
        return Placement(region=bulk, macro=_BULK)
    return None


def _spilled(model: CompiledModel, board: Board, room: int) -> Spill | None:
    """The arena in two parts; None if nothing finds a place in the preferred region."""
    if model.runtime == "classic":
        return _in_two_parts(model, board, room, None)
    return laid_out(model.graph, model.calls, lambda known: _in_two_parts(model, board, room, known), _by_place)


def _by_place(spill: Spill | None) -> dict[int, int]:
    """Offsets by tensor; the second part as far away as it is."""
    return {**spill.first, **{tensor: WHOLE + offset for tensor, offset in spill.second.items()}} if spill else {}


def _in_two_parts(model: CompiledModel, board: Board, room: int, overlap: Distances | None) -> Spill | None:
    places = arena_places(model.graph, distances=overlap)
    chosen: list[int] = []
    offsets: list[int] = []
    for index in sorted(range(len(places)), key=lambda i: (-_gain(model, board, places[i]), i)):
        trial = sorted([*chosen, index])
        packed, height = pack(places, trial)
        if height <= room:
            chosen, offsets = trial, packed
    if not chosen:
        return None
    rest = [index for index in range(len(places)) if index not in chosen]
    others, second_bytes = pack(places, rest)
    return Spill(
        region=board.arena_regions[1],
        macro=_BULK,
        first_bytes=max(offset + places[i].size_bytes for i, offset in zip(chosen, offsets, strict=True)),
        second_bytes=second_bytes,
        first=_by_tensor(places, chosen, offsets),
        second=_by_tensor(places, rest, others),
    )


def _by_tensor(places: list[Place], indices: list[int], offsets: list[int]) -> dict[int, int]:
    return {tensor: o for index, o in zip(indices, offsets, strict=True) for tensor in places[index].tensors}


def _gain(model: CompiledModel, board: Board, place: Place) -> int:
    """Cycles that the bus is spared for each cache line; one that is written is fetched first and goes back later."""
    cache, tensors = board.cache, set(place.tensors)
    ops = [op for op in model.graph.ops if op.kind != "RESHAPE"]  # which moves nothing
    reads = sum(len(tensors.intersection(op.inputs)) for op in ops)
    writes = sum(len(tensors.intersection(op.outputs)) for op in ops)
    return round((2 * reads + 3 * writes) * cache.ram_load_fill_cycles)  # the way back is shorter: half of a fill


def _hot_weights(model: CompiledModel, board: Board, placement: Placement, room: int) -> frozenset[int]:
    """The ops whose weights gain most from being copied, as long as there is room."""
    if board.memories[board.arena_regions[0]].cached:
        return frozenset()  # RAM like any other: a line costs about what it costs from flash
    # The data cache serves weights alone if no activation passes through it.
    is_shared = placement.spill is not None or board.memories[placement.region].cached
    resident = board.cache.data.size // (2 if is_shared else 1)
    weighted = [
        i for i, numbers in enumerate(model.numbers) if any(model.network.ops[n].kind in WEIGHTED for n in numbers)
    ]
    passes = {index: weight_passes(model, index, resident) for index in weighted}
    chosen = set()
    for index in sorted(passes, key=lambda i: (-passes[i], -model.calls[i].constant_bytes, i)):
        if model.calls[index].constant_bytes <= room:
            chosen.add(index)
            room -= model.calls[index].constant_bytes
    return frozenset(chosen)


def weight_passes(model: CompiledModel, index: int, resident_bytes: int) -> int:
    """How often an op's weights come from flash in one inference; so many bytes stay in the cache."""
    op, call = model.graph.ops[index], model.calls[index]
    if call.constant_bytes <= resident_bytes:
        return 1
    if isinstance(op.options, FusedOptions):
        return len(op.options.chain.steps)
    result = model.graph.tensors[op.outputs[0]]
    if call.kernel in ("fast_matrix", "small_matrix"):
        source = model.graph.tensors[op.inputs[0]]
        return max(1, -(-2 * source.elements // call.scratch_bytes))  # runs of widened pixels
    return result.shape[1] if len(result.shape) == 4 else 1  # rows of outputs


def _check_flash(model: CompiledModel, board: Board, front_end: FrontEnd | None) -> None:
    constants = model.constant_bytes + (front_end.constant_bytes if front_end else 0)
    needed = constants + model.most_code_bytes + CODE_BYTES + _CALL_BYTES * max(0, len(model.calls) - _COUNTED_OPS)
    flash = board.memories["flash"]
    if needed > flash.size:
        are_wide = any(kernel in call.kernel for call in model.calls for kernel in _WIDE_WEIGHTS)
        first = "set firmware.weights=small, which takes half as much, " if are_wide else ""
        raise _over(board, f"weights of {constants} B and code", "flash", flash, needed, first)


def _does_not_fit(model: CompiledModel, board: Board, beside: int, room: int) -> StageError:
    spill = _spilled(model, board, room) if room > 0 else None
    whole = model.layout.arena_bytes + (0 if room >= 0 else _working_bytes(model))
    least = min(whole, spill.second_bytes) if spill else whole
    region = board.arena_regions[1]
    names = "input and output" if model.output_bytes > SHORT_OUTPUT_BYTES else "input"
    what = f"arena of {model.layout.arena_bytes} B, scratch of {model.scratch_bytes} B and {names} of {beside} B"
    if spill and least < whole:
        what += f", {spill.first_bytes} B of them in {board.arena_regions[0]},"
    return _over(board, what, region, board.memories[region], least + beside)


def _over(board: Board, what: str, region: str, memory: Memory, needed: int, first: str = "") -> StageError:
    return StageError(
        f"firmware: {what} need {needed} B, {region} of {board.name} has {memory.size} B "
        f"({needed - memory.size} B over); {first}prune further or choose a board with more memory"
    )
