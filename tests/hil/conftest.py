"""Fixtures of the hil tests: the tiny twin image, built here with the cross compiler, and the profiler plugin."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hil.virtual.profiler import build_plugin, host_compiler

TINY = Path(__file__).parent / "tiny_twin"
CROSS_COMPILER = "arm-none-eabi-gcc"


@pytest.fixture(scope="session")
def cross_compiler() -> str:
    path = shutil.which(CROSS_COMPILER)
    assert path is not None, f"{CROSS_COMPILER} is needed: apt-get install gcc-arm-none-eabi"
    return path


@pytest.fixture(scope="session")
def tiny_twin(cross_compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image whose three ops have instruction counts that can be told by hand."""
    image = tmp_path_factory.mktemp("tiny") / "tiny.elf"
    flags = ["-mcpu=cortex-m7", "-mthumb", "-O2", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"]
    sources = [str(TINY / "tiny.c"), str(TINY / "op_asm.S")]
    subprocess.run([cross_compiler, *flags, "-T", str(TINY / "tiny.ld"), "-o", str(image), *sources], check=True)
    return image


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = host_compiler()
    assert compiler is not None, "a C compiler is needed: apt-get install gcc"
    return build_plugin(tmp_path_factory.mktemp("plugin"), compiler)
