"""An ELF image as the profiler needs it: bytes by address, variables and sections by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from pipeline.errors import ToolError


@dataclass(frozen=True)
class Symbol:
    """A named piece of memory."""

    name: str
    address: int
    size_bytes: int


@dataclass(frozen=True)
class Program:
    """The loadable bytes of an image, its variables and its sections."""

    segments: tuple[tuple[int, bytes], ...]  # start address, bytes
    objects: dict[str, Symbol]
    sections: dict[str, Symbol]  # those that take memory on the device
    functions: tuple[Symbol, ...] = ()
    global_functions: frozenset[str] = frozenset()  # known outside of their files

    def code_at(self, address: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes of the image, none where it has none."""
        for start, data in self.segments:
            if start <= address < start + len(data):
                return data[address - start : address - start + size_bytes]
        return b""


def read_program(path: Path) -> Program:
    """Read an ELF file."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            segments = tuple(
                (segment["p_vaddr"], segment.data())
                for segment in elf.iter_segments()
                if segment["p_type"] == "PT_LOAD" and segment["p_filesz"] > 0
            )
            table: Any = elf.get_section_by_name(".symtab")
            symbols = [] if table is None else list(table.iter_symbols())
            objects = {
                symbol.name: Symbol(symbol.name, symbol["st_value"], symbol["st_size"])
                for symbol in symbols
                if symbol["st_info"]["type"] == "STT_OBJECT"
            }
            functions = tuple(
                Symbol(symbol.name, symbol["st_value"] & ~1, symbol["st_size"])
                for symbol in symbols
                if symbol["st_info"]["type"] == "STT_FUNC"
            )
            shared = frozenset(
                symbol.name
                for symbol in symbols
                if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_info"]["bind"] == "STB_GLOBAL"
            )
            sections = {
                section.name: Symbol(section.name, section["sh_addr"], section["sh_size"])
                for section in elf.iter_sections()
                if section["sh_flags"] & SH_FLAGS.SHF_ALLOC
            }
    except (OSError, ELFError) as error:
        raise ToolError(f"{path}: not readable as an ELF image ({error}); run the firmware step again") from error
    return Program(segments, objects, sections, functions, shared)
