"""Thumb-2 code for the tests of decoder and cycle model, assembled here with the cross compiler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from hil.virtual.program import Program

Assemble = Callable[[str], Program]


@pytest.fixture
def assemble(cross_compiler: str, tmp_path: Path) -> Assemble:
    def assembled(text: str) -> Program:
        source, product = tmp_path / "code.S", tmp_path / "code.o"
        lines = [line.strip() for line in text.strip().splitlines()]
        source.write_text(
            "\n".join([".syntax unified", ".thumb", ".cpu cortex-m7", ".fpu fpv5-d16", ".text", *lines, ""])
        )
        subprocess.run([cross_compiler, "-mcpu=cortex-m7", "-mthumb", "-c", source, "-o", product], check=True)
        with product.open("rb") as stream:
            code = ELFFile(stream).get_section_by_name(".text").data()
        return Program(((0, code),), {}, {})

    return assembled
