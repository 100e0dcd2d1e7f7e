"""Where code, constants and memory of a network will lie in its twin's image, without linking it.

The linker puts one thing behind the other (boards/firmware/core/sections.ld): first what does not depend on the
network, which is read off one image with the same kernels, then the generated functions, model.c's own code (functions
of fused calls, the last one first as the compiler writes them, then model_invoke), the rest of the firmware, and from a
whole line on the constants, again the last one first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boards import Board
from hil.virtual.instruction import Decoder, Pipe
from hil.virtual.profiler import MemoryKind
from hil.virtual.program import Program
from hil.virtual.replay.lines import LOAD, STORE, Piece, Touches
from stages.firmware.cost.bench import Price
from stages.firmware.cost.invoke_code import INVOKE, OwnEvents, own_events, packed
from stages.firmware.cost.trace import TracedPiece, constant_names
from stages.firmware.memory.regions import SHORT_OUTPUT_BYTES
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_PLACED = 32  # alignment in boards/firmware/core/placement.h
_GENERATED = 8  # alignment of generated functions
_WORD = 4  # alignment of others
_CONSTANTS = 32  # alignment of all of them in sections.ld
_FUSED = "fused_"  # how names of model.c's functions begin
PLACE_BYTES = 8  # of an op in TENSOR_PLACES
_FAST, _BULK = "PLACE_FAST", "PLACE_BULK"
_BUFFER, _TENSORS = 0x10000000, 0x60000000  # where the copy of the input is said to have been traced


@dataclass(frozen=True)
class Reference:
    """A twin's image that was linked with the same kernels."""

    functions: dict[str, int]  # addresses
    generated: int  # where generated functions begin
    model: int  # and those of model.c
    fused_bytes: int  # of these, in functions of fused calls
    invoke: int
    invoke_bytes: int
    first_call: int  # the code of the first op in model_invoke
    call_bytes: int  # of all ops there
    code_end: int
    constants: int  # where those of model.c begin
    bulk: int
    ops: int
    own: tuple[OwnEvents, ...]  # of model_invoke, by op; empty where unknown
    fast_bytes: int  # that the network takes of the first RAM


def reference_of(program: Program, model: CompiledModel, placement: Placement, prices: Sequence[Price]) -> Reference:
    """What a linked image says of others."""
    functions = {symbol.name: symbol.address for symbol in program.functions}
    invoke = functions["model_invoke"]
    own = min(at for name, at in functions.items() if name.startswith(_FUSED) or name == "model_input")
    places, code = program.objects["TENSOR_PLACES"], program.sections[".text"]
    return Reference(
        functions=functions,
        generated=min((functions[name] for name in model.assembly if name in functions), default=own),
        model=own,
        fused_bytes=sum(size for _, size in _fused(prices)),
        invoke=invoke,
        invoke_bytes=next(symbol.size_bytes for symbol in program.functions if symbol.address == invoke),
        first_call=_behind_the_first_mark(program, invoke),
        call_bytes=sum(_call_bytes(price) for price in prices),
        code_end=code.address + code.size_bytes,
        constants=places.address + places.size_bytes,
        bulk=program.sections[".bulk"].address,
        ops=len(model.calls),
        own=own_events(program, invoke, len(model.calls)),
        fast_bytes=_fast_bytes(model, placement, prices),
    )


def _behind_the_first_mark(program: Program, invoke: int) -> int:
    """A mark ends with a branch to what takes the time."""
    decoder = Decoder(program)
    while True:
        (instruction,) = decoder.block(invoke, 1)
        invoke += instruction.size_bytes
        if instruction.pipe is Pipe.BRANCH:
            return invoke


class Layout:
    """Addresses of one network."""

    def __init__(
        self, model: CompiledModel, placement: Placement, board: Board, prices: Sequence[Price], reference: Reference
    ) -> None:
        self._model, self._placement, self._prices, self._reference = model, placement, prices, reference
        fast, bulk = (board.memories[region] for region in board.arena_regions)
        self._kinds: dict[str, MemoryKind] = {
            _FAST: "ram" if fast.cached else "uncached",
            _BULK: "ram" if bulk.cached else "uncached",
        }
        self._generated = dict(self._generated_functions())
        self._fused = dict(self._fused_functions())
        self._shift = self._fused_end - (reference.model + reference.fused_bytes)  # of model_invoke
        invoke_bytes = reference.invoke_bytes
        if len(prices) != reference.ops:
            # The rest of model_invoke: what marks do when time is taken, and addresses, for each op.
            invoke_bytes = (reference.invoke_bytes - reference.call_bytes) * len(prices) // reference.ops
            invoke_bytes += sum(_call_bytes(price) for price in prices)
        self._shift_behind = self._shift + _up(invoke_bytes, _WORD) - _up(reference.invoke_bytes, _WORD)
        self._constants = dict(self._constant_places())
        self._memory, self._buffer = self._memory_places()

    def touches(self) -> Iterator[Touches]:
        """Of the copy of the input, then of every op."""
        yield self._input_copy()
        reference = self._reference
        code = reference.first_call + self._shift
        is_known = len(reference.own) == len(self._prices)  # else: as long as the calls of the bench
        invoke = Piece(INVOKE, INVOKE + reference.invoke_bytes, reference.invoke + self._shift, "flash")
        for index, price in enumerate(self._prices):
            assert price.trace is not None
            pieces, events = [invoke], price.trace.events
            for traced in price.trace.pieces:
                found = None if is_known and traced.what == "call" else self._place(index, traced, code)
                if found is not None:
                    pieces.append(Piece(traced.start, traced.end, *found))
            code += _call_bytes(price)
            if is_known:
                events = reference.own[index].before + events + reference.own[index].behind
            yield Touches(events, pieces)

    def _place(self, index: int, traced: TracedPiece, code: int) -> tuple[int, MemoryKind] | None:
        """Where a piece is now; None: nowhere that counts."""
        if traced.what == "activation":
            return self._tensor(self._model.calls[index].activations[int(traced.name)])
        if traced.what == "constant":
            return self._constants.get((index, int(traced.name)))
        if traced.what == "scratch":
            return self._memory["scratch"]
        if traced.what == "call":
            return code, "flash"
        if traced.what == "fused":
            return self._fused[index], "flash"
        if traced.name in self._generated:
            return self._generated[traced.name], "flash"
        address = self._reference.functions.get(traced.name)
        if address is None:
            return None
        return address + (self._shift_behind if address > self._reference.invoke else 0), "flash"

    def _generated_functions(self) -> Iterator[tuple[str, int]]:
        sizes = {name: size for price in self._prices for name, size in price.assembly_bytes.items()}
        end = self._reference.generated
        for name in self._model.assembly:
            address = _up(end, _GENERATED)
            yield name, address
            end = address + sizes[name]
        self._generated_end = end

    def _fused_functions(self) -> Iterator[tuple[int, int]]:
        """By the number of the op."""
        address = _up(self._generated_end, _WORD)
        for index, size in reversed(list(_fused(self._prices))):
            yield index, address
            address += size
        self._fused_end = address

    def _constant_places(self) -> Iterator[tuple[tuple[int, int], tuple[int, MemoryKind]]]:
        more = PLACE_BYTES * (len(self._prices) - self._reference.ops)
        code_end = self._reference.code_end
        moved = _up(code_end + self._shift_behind, _CONSTANTS) - _up(code_end, _CONSTANTS)
        address = self._reference.constants + moved + more
        for index, number, size, in_ram in reversed(list(_constants(self._model, self._placement, self._prices))):
            if in_ram:
                yield (index, number), (0, self._kinds[_FAST])
            else:
                yield (index, number), (address, "flash")
                address += _up(size, _WORD)

    def _memory_places(self) -> tuple[dict[str, tuple[int, MemoryKind]], tuple[int, MemoryKind]]:
        """Arenas and scratch memory, and the link's buffer of the input."""
        more = _fast_bytes(self._model, self._placement, self._prices) - self._reference.fast_bytes
        address = _up(self._reference.bulk + more, _PLACED)
        if self._model.output_bytes > SHORT_OUTPUT_BYTES:
            address += _up(self._model.output_bytes, _PLACED)
        buffer = address, self._kinds[_BULK]
        address += self._model.input_bytes
        found: dict[str, tuple[int, MemoryKind]] = {}
        for name, macro, size in _memory(self._model, self._placement):
            if macro == _BULK:
                address = _up(address, _PLACED)
                found[name] = address, self._kinds[_BULK]
                address += size
            else:
                found[name] = self._reference.bulk, self._kinds[_FAST]
        return found, buffer

    def _tensor(self, tensor: int) -> tuple[int, MemoryKind]:
        spill = self._placement.spill
        if spill is None:
            base, offset = self._memory["arena"], self._model.layout.offsets[tensor]
        elif tensor in spill.first:
            base, offset = self._memory["arena"], spill.first[tensor]
        else:
            base, offset = self._memory["second_arena"], spill.second[tensor]
        return base[0] + offset, base[1]

    def _input_copy(self) -> Touches:
        """Before an inference, from the link's buffer to the input."""
        pieces, words, copied = [], [], 0
        for index in self._model.graph.inputs:
            size = self._model.graph.tensors[index].nbytes
            pieces.append(Piece(_BUFFER + copied, _BUFFER + copied + size, self._buffer[0] + copied, self._buffer[1]))
            pieces.append(Piece(_TENSORS + copied, _TENSORS + copied + size, *self._tensor(index)))
            for offset in range(copied, copied + size, _PLACED):
                words += [_BUFFER + offset & ~3 | LOAD, _TENSORS + offset & ~3 | STORE]
            copied += size
        return Touches(packed(words), pieces)


def _memory(model: CompiledModel, placement: Placement) -> Iterator[tuple[str, str, int]]:
    """Name, region and bytes, in the order in which the compiler writes them."""
    spill = placement.spill
    yield "scratch", placement.scratch_macro or placement.macro, model.scratch_bytes
    if spill:
        yield "second_arena", spill.macro, spill.second_bytes
    yield "arena", placement.macro, spill.first_bytes if spill else model.layout.arena_bytes


def _constants(
    model: CompiledModel, placement: Placement, prices: Sequence[Price]
) -> Iterator[tuple[int, int, int, bool]]:
    """Op, number, bytes and whether it is copied to RAM, as defined."""
    for index, (call, price) in enumerate(zip(model.calls, prices, strict=True)):
        names = constant_names(call)
        for number, (name, size) in enumerate(zip(names, price.constants_bytes, strict=True)):
            is_array = f" {name}[" in call.constants
            yield index, number, size, is_array and index in placement.ram_weights


def _fused(prices: Sequence[Price]) -> Iterator[tuple[int, int]]:
    """Number and bytes of the functions of fused calls."""
    for index, price in enumerate(prices):
        assert price.trace is not None
        for piece in price.trace.pieces:
            if piece.what == "fused":
                yield index, _up(piece.end - piece.start, _WORD)


def _call_bytes(price: Price) -> int:
    """Of a call in model_invoke."""
    assert price.trace is not None
    return sum(piece.end - piece.start for piece in price.trace.pieces if piece.what == "call")


def _fast_bytes(model: CompiledModel, placement: Placement, prices: Sequence[Price]) -> int:
    copied = sum(_up(size, _WORD) for _, _, size, in_ram in _constants(model, placement, prices) if in_ram)
    return copied + sum(_up(size, _PLACED) for _, macro, size in _memory(model, placement) if macro == _FAST)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
