"""model.c of a network at its addresses: compiled, and linked alone, without the values in its arrays.

How long its code is and where its constants lie depends on widths in ways that only the compiler knows: a constant that
needs a longer instruction, a literal more, arrays of bytes that are aligned to nothing. No value in an array changes
any of it, and without them a compilation takes a tenth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elftools.elf.elffile import ELFFile

from hil.virtual.program import Program, read_program
from stages.firmware.build.image import INCLUDES, write_sources
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_VALUES = re.compile(r"(static (?:const )?u?int\d+_t \w+\[\d+\](?: \w+)?(?: __attribute__\S+)? = )\{[^}]*\};")
RAM = 0x20000000  # of the twin
_SCRIPT = """
SECTIONS
{{
    .text {code:#x} : {{ *(.text*) }}
    .rodata {constants:#x} : {{ *(.rodata*) }}
    .data {ram:#x} : {{ *(.data*) *(.bss*) *(COMMON) *(.fast*) *(.bulk*) }}
    /DISCARD/ : {{ *(.ARM*) }}
}}
"""


@dataclass(frozen=True, eq=False)
class OwnCode:
    """An object file of model.c, and what it calls."""

    content: bytes
    calls: frozenset[str]
    tools: Toolchain

    def at(self, code: int, constants: int, address_of: Callable[[str], int]) -> Program:
        """Linked with its code and its constants from here on; `address_of` the functions that others have."""
        with TemporaryDirectory(prefix="own-") as name:
            folder = Path(name)
            (folder / "model.o").write_bytes(self.content)
            others = folder / "others.S"
            lines = [f".global {each}\n.thumb_set {each}, {address_of(each):#x}\n" for each in sorted(self.calls)]
            others.write_text(".syntax unified\n.thumb\n" + "".join(lines))
            script = folder / "own.ld"
            script.write_text(_SCRIPT.format(code=code, constants=constants, ram=RAM))
            objects = [folder / "model.o", *self.tools.compile_all([others], (), {}, folder / "objects")]
            return read_program(self.tools.link(objects, [script], folder / "own.elf", ["--no-gc-sections"]))


def own_code(model: CompiledModel, placement: Placement, tools: Toolchain) -> OwnCode:
    """Compile what the network has in C."""
    with TemporaryDirectory(prefix="own-") as name:
        generated = Path(name).resolve() / "generated"
        write_sources(model, "priced", placement, generated)
        source = generated / "model.c"
        source.write_text(_VALUES.sub(r"\g<1>{0};", source.read_text()))
        (compiled,) = tools.compile_all([source], [*INCLUDES, generated], {}, Path(name) / "objects")
        return OwnCode(compiled.read_bytes(), _undefined(compiled), tools)


def _undefined(file: Path) -> frozenset[str]:
    with file.open("rb") as stream:
        table: Any = ELFFile(stream).get_section_by_name(".symtab")
        return frozenset(each.name for each in table.iter_symbols() if each["st_shndx"] == "SHN_UNDEF" and each.name)
