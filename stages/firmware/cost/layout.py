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
from hil.virtual.program import Program
from hil.virtual.replay.lines import LOAD, STORE, Piece, Touches
from stages.firmware.cost.bench import Price
from stages.firmware.cost.invoke_code import INVOKE, own_events, packed
from stages.firmware.cost.own_code import OwnCode
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
_OWN = re.compile(r"(fused_\d+|model_(invoke|input|output|reset))\b")  # functions of model.c
_FIRST_CONSTANT = "TENSOR_PLACES"  # of model.c: gcc writes the last one first
PLACE_BYTES = 8  # of an op in TENSOR_PLACES
_FAST, _BULK = "PLACE_FAST", "PLACE_BULK"
_BUFFER, _TENSORS = 0x10000000, 0x60000000  # where the copy of the input is said to have been traced


@dataclass(frozen=True)
class Reference:
    """A twin's image that was linked with the same kernels."""

    functions: dict[str, int]  # addresses
    generated: int  # where generated functions begin
    own_end: int  # of model.c's functions
    code_end: int
    constants: int  # where those of model.c begin
    copies: int  # where RAM begins that holds copied constants
    cleared_bytes: int  # variables behind those, without what every op takes
    fast_bytes: int  # memory of others behind the network's in the first RAM


def reference_of(program: Program, model: CompiledModel, placement: Placement) -> Reference:
    """What a linked image says of others."""
    functions = {symbol.name: symbol.address for symbol in program.functions}
    own = [symbol for symbol in program.functions if _OWN.match(symbol.name)]
    code = program.sections[".text"]
    return Reference(
        functions=functions,
        generated=min(functions[name] for name in [*model.assembly, *(each.name for each in own)] if name in functions),
        own_end=max(each.address + each.size_bytes for each in own),
        code_end=code.address + code.size_bytes,
        constants=program.objects[_FIRST_CONSTANT].address,
        copies=program.sections[".data"].address,
        cleared_bytes=program.sections[".bss"].size_bytes - MARK_BYTES * len(model.calls),
        fast_bytes=program.sections[".fast"].size_bytes - _placed_bytes(model, placement, _FAST),
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
        self._memory, self._buffer = self._memory_places()

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
        """Of the copy of the input, then of every op."""
        yield self._input_copy()
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

    def _memory_places(self) -> tuple[dict[str, tuple[int, MemoryKind]], tuple[int, MemoryKind]]:
        """Arenas and scratch memory, and the link's buffer of the input."""
        address = bulk = self._bulk_start()
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
                found[name] = bulk, self._kinds[_FAST]  # somewhere before it, which does not matter
        return found, buffer

    def _bulk_start(self) -> int:
        """Behind copied constants, variables and the first RAM's memory (boards/firmware/core/sections.ld)."""
        copied = _constants(self._model, self._placement, self._prices)
        address = self._reference.copies + sum(_up(size, _WORD) for *_, size, in_ram in copied if in_ram)
        marks = MARK_BYTES * len(self._model.calls)
        address = _up(address, _VARIABLES) + _up(self._reference.cleared_bytes + marks, _VARIABLES)
        address = _up(address, _PLACED) + _placed_bytes(self._model, self._placement, _FAST)
        return _up(address + self._reference.fast_bytes, _PLACED)

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
) -> Iterator[tuple[int, int, str, int, bool]]:
    """Op, number, name, bytes and whether it is copied to RAM, as defined."""
    for index, (call, price) in enumerate(zip(model.calls, prices, strict=True)):
        names = constant_names(call)
        for number, (name, size) in enumerate(zip(names, price.constants_bytes, strict=True)):
            is_array = f" {name}[" in call.constants
            yield index, number, name, size, is_array and index in placement.ram_weights


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
