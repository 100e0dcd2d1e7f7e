"""How deep the stack can get: every function's own use and every call, read off the machine code of an image.

The code itself is read, not what the compiler says of it, so that generated assembly and the C library count like
everything else. A function's use is all that its instructions take from the stack pointer, whichever way it runs. An
indirect call from a kernel goes to the generated inner loops, which is all that the kernels' structures point to; one
from the profiler's marks to a function whose address stands in code, because somebody passed it on; any other may go to
every function whose address the linker put somewhere (images keep their relocations).

Refuses recursion and memory taken from the stack in amounts that are not known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_RELOC_TYPE_ARM
from elftools.elf.relocation import RelocationSection

from pipeline.errors import StageError

_ENTRY, _INFERENCE, _MARKS, _VECTORS = "Reset_Handler", "model_invoke", "prof_", ".vectors"
_EXCEPTION_BYTES = 112  # 26 words with those of the FPU, aligned to 8 (DDI 0403, exception entry)
_ABSOLUTE = {ENUM_RELOC_TYPE_ARM[name] for name in ("R_ARM_ABS32", "R_ARM_TARGET1")}
_IMMEDIATE = re.compile(r"#(-?(?:0x)?[0-9a-f]+)")


@dataclass(frozen=True)
class StackBound:
    """Bytes below the top of the stack."""

    inference_bytes: int  # from model_invoke() on
    main_bytes: int  # from reset on
    image_bytes: int  # and with every exception of the vector table on top of it, each once


@dataclass
class _Function:
    """One function of the image."""

    name: str
    start: int
    end: int
    stack_bytes: int = 0
    calls: set[int] = field(default_factory=set)  # start addresses
    calls_pointers: bool = False


def stack_bound(image: Path, inner_loops: Collection[str]) -> StackBound:
    """The bound of an image whose inference calls `inner_loops` through pointers."""
    code = _Code(image)
    main = code.depth(code.named(_ENTRY), inner_loops)
    handlers = code.handlers - {code.named(_ENTRY)}
    return StackBound(
        inference_bytes=code.depth(code.named(_INFERENCE), inner_loops),
        main_bytes=main,
        image_bytes=main + sum(_EXCEPTION_BYTES + code.depth(handler, inner_loops) for handler in handlers),
    )


def reserved_stack_bytes(image: Path) -> int:
    """What the linker script keeps for the stack, a guard below it not counted."""
    with image.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".symtab").iter_symbols()
        places = {s.name: s["st_value"] for s in symbols if s.name in ("_stack_limit", "_stack_top")}
    return places["_stack_top"] - places["_stack_limit"]


class _Code:
    """The functions of an image by address."""

    def __init__(self, image: Path) -> None:
        with image.open("rb") as stream:
            elf = ELFFile(stream)
            symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
            relocated = list(_relocated_words(elf))
            self._sections = [
                (s["sh_addr"], s.data())
                for s in elf.iter_sections()
                if s["sh_flags"] & SH_FLAGS.SHF_ALLOC and s["sh_type"] == "SHT_PROGBITS"
            ]
        self.functions = _functions(symbols)
        self._starts = sorted(self.functions)
        self._marks = sorted((s["st_value"], s.name[:2]) for s in symbols if s.name[:2] in ("$t", "$d"))
        words = [(section, self._word(address)) for section, address in relocated]
        pointers = [(section, word - 1) for section, word in words if word & 1 and word - 1 in self.functions]
        self.handlers = {function for section, function in pointers if section == _VECTORS}
        self._pointed = {function for section, function in pointers if section != _VECTORS}
        self._passed_on = {function for section, function in pointers if section == ".text"}
        for function in self.functions.values():
            self._read(function)
        self._depths: dict[int, int] = {}
        self._inference = self._reached(self.named(_INFERENCE))

    def named(self, name: str) -> int:
        return next(start for start, function in self.functions.items() if function.name == name)

    def depth(self, start: int, inner_loops: Collection[str], path: tuple[int, ...] = ()) -> int:
        if start in path:
            names = " -> ".join(self.functions[at].name for at in (*path[path.index(start) :], start))
            raise StageError(f"firmware: {names} is a recursion, needed none")
        if start not in self._depths:
            callees = self._callees(start, inner_loops)
            deepest = max((self.depth(callee, inner_loops, (*path, start)) for callee in callees), default=0)
            self._depths[start] = self.functions[start].stack_bytes + deepest
        return self._depths[start]

    def _callees(self, start: int, inner_loops: Collection[str]) -> set[int]:
        function = self.functions[start]
        if not function.calls_pointers:
            return function.calls
        generated = {at for at, other in self.functions.items() if other.name in inner_loops}
        if start not in self._inference:
            return function.calls | (self._pointed - generated)
        return function.calls | (self._passed_on - generated if function.name.startswith(_MARKS) else generated)

    def _reached(self, start: int) -> set[int]:
        """What is called directly from here on."""
        found, waiting = {start}, [start]
        while waiting:
            new = self.functions[waiting.pop()].calls - found
            found |= new
            waiting += new
        return found

    def _owner(self, address: int) -> int | None:
        position = bisect_right(self._starts, address) - 1
        start = self._starts[position] if position >= 0 else None
        return start if start is not None and address < self.functions[start].end else None

    def _word(self, address: int) -> int:
        for base, data in self._sections:
            if base <= address < base + len(data):
                return int.from_bytes(data[address - base : address - base + 4], "little")
        return 0

    def _read(self, function: _Function) -> None:
        halves: dict[str, int] = {}  # of addresses that are put together in a register
        for instruction in self._instructions(function):
            mnemonic, operands = instruction.mnemonic.removesuffix(".w"), instruction.op_str
            function.stack_bytes += stack_use(function.name, mnemonic, operands)
            if mnemonic == "movw":
                halves[operands.split(",")[0]] = _number(operands)
            elif mnemonic == "movt":
                word = halves.get(operands.split(",")[0], 0) | _number(operands) << 16
                if word & 1 and word - 1 in self.functions:
                    self._pointed.add(word - 1)
                    self._passed_on.add(word - 1)
            elif mnemonic == "blx" or (mnemonic == "bx" and operands != "lr"):
                function.calls_pointers = True
            elif mnemonic.startswith("b") and mnemonic != "bkpt" and operands.startswith("#"):
                target = self._owner(_number(operands))
                if target is not None and (mnemonic == "bl" or target != function.start):
                    function.calls.add(target)

    def _instructions(self, function: _Function) -> Iterator[Any]:
        import capstone  # type: ignore[import-untyped]

        decoder = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
        decoder.skipdata = True
        for base, data in self._sections:
            if base <= function.start < base + len(data):
                for start, end in self._code_spans(function):
                    yield from decoder.disasm(data[start - base : end - base], start)

    def _code_spans(self, function: _Function) -> Iterator[tuple[int, int]]:
        """The function without the constants that stand between its instructions."""
        marks = [(at, kind) for at, kind in self._marks if function.start < at < function.end]
        ends = [*(at for at, _ in marks), function.end]
        for (start, kind), end in zip([(function.start, "$t"), *marks], ends, strict=True):
            if kind == "$t":
                yield start, end


def _relocated_words(elf: ELFFile) -> Iterator[tuple[str, int]]:
    """Where the linker wrote an address: section and place."""
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection):
            target = elf.get_section(section["sh_info"])
            if target["sh_flags"] & SH_FLAGS.SHF_ALLOC:
                for relocation in section.iter_relocations():
                    if relocation["r_info_type"] in _ABSOLUTE:
                        yield target.name, relocation["r_offset"]


def _functions(symbols: list[Any]) -> dict[int, _Function]:
    """By address; a symbol without a size reaches to the next one."""
    named = sorted((s["st_value"] & ~1, s["st_size"], s.name) for s in symbols if s["st_info"]["type"] == "STT_FUNC")
    starts = sorted({start for start, _, _ in named})
    following = dict(zip(starts, [*starts[1:], starts[-1]], strict=True))
    return {start: _Function(name, start, start + size if size else following[start]) for start, size, name in named}


def stack_use(function: str, mnemonic: str, operands: str) -> int:
    """Bytes that one instruction takes from the stack."""
    if mnemonic in ("push", "vpush") or (mnemonic in ("stmdb", "vstmdb") and operands.startswith("sp!")):
        registers = operands[operands.index("{") :]
        return (registers.count(",") + 1) * (8 if "d" in registers else 4)
    if mnemonic in ("str", "strd", "strb", "strh", "vstr") and re.search(r"\[sp, #-\w+\]!", operands):
        return -_number(operands[operands.index("[") :])
    if mnemonic in ("sub", "subw") and operands.startswith("sp"):
        if not _IMMEDIATE.search(operands):
            raise StageError(f"firmware: {function} takes memory from the stack by a register, needed a fixed amount")
        return _number(operands)
    return 0


def _number(operands: str) -> int:
    found = _IMMEDIATE.search(operands)
    return int(found.group(1), 0) if found else 0
