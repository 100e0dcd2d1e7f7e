"""Where code, constants and memory of a network will lie in its twin's image, without linking that.

The linker puts one thing behind the other (boards/firmware/core/sections.ld): first what does not depend on the
network, which is read off one image with the same kernels, then the generated functions, what model.c has (`own_code`),
the rest of the firmware, and from a whole line on the constants, again those of model.c behind the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boards import Board
from hil.virtual.profiler import MemoryKind
from hil.virtual.program import Program, Symbol
from hil.virtual.replay.lines import Piece, Touches
from stages.firmware.cost.bench import Price
from stages.firmware.cost.invoke_code import INVOKE, own_events
from stages.firmware.cost.own_code import RAM, OwnCode
from stages.firmware.cost.trace import TracedPiece, constant_names
from stages.firmware.memory.regions import MARK_BYTES, SHORT_OUTPUT_BYTES
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_PLACED = 32  # alignment in boards/firmware/core/placement.h
_GENERATED = 8  # alignment of generated functions
_WORD = 4  # alignment of others
_VARIABLES = 8  # alignment of .data and .bss in sections.ld
_CONSTANTS = 32  # alignment of all of them in sections.ld
_APART = 1 << 26  # constants from code, as long as nobody knows where that ends
_OWN = re.compile(r"(fused_\d+|model_(invoke|input|output|reset)|prof_mark_at)\b")  # functions of model.c
_FIRST_CONSTANT = "TENSOR_PLACES"  # of model.c: gcc writes the last one first
PLACE_BYTES = 8  # of an op in TENSOR_PLACES
_FAST, _BULK = "PLACE_FAST", "PLACE_BULK"


@dataclass(frozen=True)
class Reference:
    """A twin's image that was linked with the same kernels."""

    functions: dict[str, int]  # addresses
    generated: int  # where generated functions begin
    own: tuple[Symbol, ...]  # model.c's functions
    own_end: int
    code_end: int
    constants: int  # where those of model.c begin
    constants_end: int
    image_end: int
    copies: int  # where RAM begins that holds copied constants
    cleared_bytes: int  # variables behind those, without what every op takes
    fast_bytes: int  # memory of others behind the network's in the first RAM
    bulk: int
    ends: tuple[int, ...]  # where the network's inputs and outputs lie
    between: bytes  # events of what runs between two inferences; none of an image that is too large to run


def reference_of(program: Program, model: CompiledModel, placement: Placement, between: bytes) -> Reference:
    """What a linked image says of others."""
    functions = {symbol.name: symbol.address for symbol in program.functions}
    own = tuple(symbol for symbol in program.functions if _OWN.match(symbol.name))
    code, constants = program.sections[".text"], program.sections[".rodata"]
    ends = (_in_arena(model, placement, tensor) for tensor in _ends(model))
    return Reference(
        functions=functions,
        generated=min(functions[name] for name in [*model.assembly, *(each.name for each in own)] if name in functions),
        own=own,
        own_end=max(each.address + each.size_bytes for each in own),
        code_end=code.address + code.size_bytes,
        constants=program.objects[_FIRST_CONSTANT].address,
        constants_end=_constants_end(program, model),
        image_end=constants.address + constants.size_bytes,
        copies=program.sections[".data"].address,
        cleared_bytes=program.sections[".bss"].size_bytes - MARK_BYTES * len(model.calls),
        fast_bytes=program.sections[".fast"].size_bytes - _placed_bytes(model, placement, _FAST),
        bulk=program.sections[".bulk"].address,
        ends=tuple(program.objects[name].address + offset for name, offset in ends),
        between=between,
    )


class Layout:
    """Addresses of one network."""

    def __init__(
        self,
        model: CompiledModel,
        placement: Placement,
        board: Board,
        prices: Sequence[Price],
        reference: Reference,
        own: OwnCode,
    ) -> None:
        self._model, self._placement, self._prices, self._reference = model, placement, prices, reference
        fast, bulk = (board.memories[region] for region in board.arena_regions)
        self._kinds: dict[str, MemoryKind] = {
            _FAST: "ram" if fast.cached else "uncached",
            _BULK: "ram" if bulk.cached else "uncached",
        }
        self._generated = dict(self._generated_functions())
        self._own = self._linked(own)
        # gcc may call one that it made for its only caller fused_0.constprop.0
        self._functions = {symbol.name.partition(".")[0]: symbol for symbol in self._own.functions}
        self._constants = dict(self._constant_places())
        self._memory = dict(self._memory_places())

    def _linked(self, own: OwnCode) -> Program:
        """model.c between what stands before it and behind it; the constants are behind both."""
        reference = self._reference
        code = own.at(self._generated_end, _APART + reference.constants, self._address)
        end = code.sections[".text"].address + code.sections[".text"].size_bytes
        self._shift_behind = _up(end, _WORD) - _up(reference.own_end, _WORD)
        before, behind = (_up(at, _CONSTANTS) for at in (reference.code_end, reference.code_end + self._shift_behind))
        self._moved = behind - before - _APART
        return code

    def _address(self, function: str) -> int:
        return self._generated.get(function) or self._reference.functions.get(function, 0)

    def touches(self) -> Iterator[Touches]:
        """Of what lies between two inferences, then of every op."""
        yield Touches(self._reference.between, list(self._beside()))
        invoke = self._functions["model_invoke"]
        code = Piece(INVOKE, INVOKE + invoke.size_bytes, invoke.address, "flash")
        own = own_events(self._own, invoke.address, len(self._prices))
        for index, price in enumerate(self._prices):
            assert price.trace is not None
            pieces, events = [code], price.trace.events
            for traced in price.trace.pieces:
                found = self._place(index, traced)
                if found is not None and not (own and traced.what == "call"):
                    pieces.append(Piece(traced.start, traced.end, *found))
            if own:
                events = own[index].before + events + own[index].behind
            yield Touches(events, pieces)

    def _place(self, index: int, traced: TracedPiece) -> tuple[int, MemoryKind] | None:
        """Where a piece is now; None: nowhere that counts."""
        if traced.what == "activation":
            return self._tensor(self._model.calls[index].activations[int(traced.name)])
        if traced.what == "constant":
            return self._constants.get((index, int(traced.name)))
        if traced.what == "scratch":
            return self._memory["scratch"]
        if traced.what == "call":
            return self._functions["model_invoke"].address, "flash"
        if traced.what == "fused":
            return self._functions[_called(self._model.calls[index].call)].address, "flash"
        if traced.name in self._generated:
            return self._generated[traced.name], "flash"
        address = self._reference.functions.get(traced.name)
        if address is None:
            return None
        return address + (self._shift_behind if address >= self._reference.own_end else 0), "flash"

    def _generated_functions(self) -> Iterator[tuple[str, int]]:
        sizes = {name: size for price in self._prices for name, size in price.assembly_bytes.items()}
        end = self._reference.generated
        for name in self._model.assembly:
            address = _up(end, _GENERATED)
            yield name, address
            end = address + sizes[name]
        self._generated_end = end

    def _constant_places(self) -> Iterator[tuple[tuple[int, int], tuple[int, MemoryKind]]]:
        for index, number, name, _, in_ram in _constants(self._model, self._placement, self._prices):
            if in_ram:
                yield (index, number), (0, self._kinds[_FAST])
            else:
                yield (index, number), (self._own.objects[name].address + self._moved, "flash")

    def _memory_places(self) -> Iterator[tuple[str, tuple[int, MemoryKind]]]:
        """Arenas and scratch memory."""
        bulk = self._bulk_start()
        address = bulk + self._link_bytes
        for name, macro, size in _memory(self._model, self._placement):
            if macro == _BULK:
                address = _up(address, _PLACED)
                yield name, (address, self._kinds[_BULK])
                address += size
            else:
                yield name, (bulk, self._kinds[_FAST])  # somewhere before it, which does not matter

    @property
    def _link_bytes(self) -> int:
        """Buffers of the link, before the network's memory in the second RAM."""
        long_output = self._model.output_bytes if self._model.output_bytes > SHORT_OUTPUT_BYTES else 0
        return _up(long_output, _PLACED) + self._model.input_bytes

    def _bulk_start(self) -> int:
        """Behind copied constants, variables and the first RAM's memory (boards/firmware/core/sections.ld)."""
        copied = _constants(self._model, self._placement, self._prices)
        address = self._reference.copies + sum(_up(size, _WORD) for *_, size, in_ram in copied if in_ram)
        marks = MARK_BYTES * len(self._model.calls)
        address = _up(address, _VARIABLES) + _up(self._reference.cleared_bytes + marks, _VARIABLES)
        address = _up(address, _PLACED) + _placed_bytes(self._model, self._placement, _FAST)
        return _up(address + self._reference.fast_bytes, _PLACED)

    def _tensor(self, tensor: int) -> tuple[int, MemoryKind]:
        name, offset = _in_arena(self._model, self._placement, tensor)
        start, kind = self._memory[name]
        return start + offset, kind

    def _beside(self) -> Iterator[Piece]:
        """Where that is now which the reference has beside its network's kernels."""
        there = self._reference
        yield Piece(0, there.generated, 0, "flash")
        for symbol in there.own:
            if (now := self._functions.get(symbol.name)) is not None:
                yield Piece(symbol.address, symbol.address + symbol.size_bytes, now.address, "flash")
        yield Piece(there.own_end, there.code_end, there.own_end + self._shift_behind, "flash")
        before = _up(there.code_end, _CONSTANTS)
        yield Piece(before, there.constants, before + self._moved + _APART, "flash")
        end = _constants_end(self._own, self._model) + self._moved
        yield Piece(there.constants_end, there.image_end, end, "flash")
        yield Piece(there.bulk, there.bulk + self._link_bytes, self._bulk_start(), self._kinds[_BULK])
        for tensor, address in zip(_ends(self._model), there.ends, strict=True):
            yield Piece(address, address + self._model.graph.tensors[tensor].nbytes, *self._tensor(tensor))


def _memory(model: CompiledModel, placement: Placement) -> Iterator[tuple[str, str, int]]:
    """Name, region and bytes, in the order in which the compiler writes them."""
    spill = placement.spill
    yield "scratch", placement.scratch_macro or placement.macro, model.scratch_bytes
    if spill:
        yield "second_arena", spill.macro, spill.second_bytes
    yield "arena", placement.macro, spill.first_bytes if spill else model.layout.arena_bytes


def _constants(
    model: CompiledModel, placement: Placement, prices: Sequence[Price]
) -> Iterator[tuple[int, int, str, int, bool]]:
    """Op, number, name, bytes and whether it is copied to RAM, as defined."""
    for index, (call, price) in enumerate(zip(model.calls, prices, strict=True)):
        names = constant_names(call)
        for number, (name, size) in enumerate(zip(names, price.constants_bytes, strict=True)):
            is_array = f" {name}[" in call.constants
            yield index, number, name, size, is_array and index in placement.ram_weights


def _constants_end(program: Program, model: CompiledModel) -> int:
    """Of those that model.c has in flash."""
    named = (program.objects[name] for call in model.calls for name in [*constant_names(call), _FIRST_CONSTANT])
    return max(each.address + each.size_bytes for each in named if each.address < RAM)


def _ends(model: CompiledModel) -> list[int]:
    return [*model.graph.inputs, *model.graph.outputs]


def _in_arena(model: CompiledModel, placement: Placement, tensor: int) -> tuple[str, int]:
    """Which part of the arena holds a tensor, and from where on."""
    spill = placement.spill
    if spill is None or tensor in spill.first:
        return "arena", (spill.first if spill else model.layout.offsets)[tensor]
    return "second_arena", spill.second[tensor]


def _called(call: str) -> str:
    """The function of a fused call."""
    return call.partition("(")[0]


def _placed_bytes(model: CompiledModel, placement: Placement, region: str) -> int:
    end = 0
    for _, macro, size in _memory(model, placement):
        if macro == region:
            end = _up(end, _PLACED) + size
    return _up(end, _WORD)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
