"""arm-none-eabi-gcc: C files to objects, objects to images, byte for byte the same wherever they are built."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ToolError

COMPILER = "arm-none-eabi-gcc"
OBJCOPY = "arm-none-eabi-objcopy"
TIME_LIMIT_S = 300.0
_INSTALL = "apt-get install --no-install-recommends gcc-arm-none-eabi libnewlib-arm-none-eabi"

CORE_FLAGS = ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard")  # of most of them: see core_flags
C_FLAGS = (
    *("-std=c11", "-g", "-ffunction-sections", "-fdata-sections"),
    *("-ffp-contract=fast",),  # the M7 multiplies and adds in one instruction
    *("-fwrapv",),  # sums wrap as in the reference kernels, instead of being undefined
    *(
        "-fno-tree-reassoc",
    ),  # with -fwrapv gcc would regroup the kernels' sums and run out of registers (+40 % instructions)
    *("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow", "-Wdouble-promotion"),
)
_LIBRARIES = ("-lc", "-lgcc")
# What runs in an inference is compiled as wanted; the rest, which waits for the host, for size.
_HOT_FOLDERS = frozenset({"kernels", "inner", "audio", "generated"})
_SMALLEST = "Os"
_HOT_LEVELS = {
    "packed_channels.c": "O2",
    "small_dot.c": "O2",
}  # in firmware that is to be small, too: 0.5 KB for 2 to 4 % of the time
LINK_FLAGS = (
    *("-nostartfiles", "-nostdlib", "-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,--fatal-warnings"),
    *("-Wl,--emit-relocs",),  # stack_depth.py reads off them which functions have their address taken
)


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compiler, and the folders whose names must not reach the image."""

    optimise: str  # O2, O3, Os
    path_names: Mapping[Path, str]  # folder -> what debug information calls it
    fpu: str = "fpv5-d16"  # as board.yaml names it

    @property
    def core_flags(self) -> tuple[str, ...]:
        return tuple(f"-mfpu={self.fpu}" if flag.startswith("-mfpu=") else flag for flag in CORE_FLAGS)

    @property
    def flags(self) -> tuple[str, ...]:
        return (*self.core_flags, f"-{self.optimise}", *C_FLAGS)

    def level(self, source: Path) -> str:
        """How a file is optimised."""
        if source.parent.name not in _HOT_FOLDERS:
            return _SMALLEST
        return _HOT_LEVELS.get(source.name, self.optimise)

    def version(self) -> str:
        return run_tool([COMPILER, "--version"]).splitlines()[0]

    def compile_all(
        self, sources: Sequence[Path], includes: Sequence[Path], defines: Mapping[str, str], into: Path
    ) -> list[Path]:
        """Objects in the order of the sources."""
        into.mkdir(parents=True)
        names = [f"-ffile-prefix-map={folder}={name}" for folder, name in {into: "objects", **self.path_names}.items()]
        shared = [COMPILER, *self.flags, *names]
        shared += [f"-I{folder}" for folder in includes] + [f"-D{name}={value}" for name, value in defines.items()]

        def compile_one(source: Path) -> Path:
            output = into / f"{source.parent.name}_{source.name}.o"
            # The assembler's debug information would hold unmapped paths, and say nothing that the names do not.
            debug = ["-g0"] if source.suffix == ".S" else []
            run_tool([*shared, f"-{self.level(source)}", *debug, "-c", str(source), "-o", str(output)], cwd=into)
            return output

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            return list(pool.map(compile_one, sources))

    def link(self, objects: Sequence[Path], scripts: Sequence[Path], output: Path, options: Sequence[str] = ()) -> Path:
        """An ELF image; the scripts are read in turn. `options` are the linker's own."""
        flags = [*LINK_FLAGS, *(f"-Wl,-T,{script}" for script in scripts), *(f"-Wl,{option}" for option in options)]
        run_tool([COMPILER, *self.core_flags, *flags, *map(str, objects), *_LIBRARIES, "-o", str(output)])
        return output


def copy_image(image: Path, kind: str, output: Path) -> Path:
    """The bytes of an ELF image as 'binary' or 'ihex'."""
    run_tool([OBJCOPY, "-O", kind, str(image), str(output)])
    return output


def run_tool(argv: list[str], cwd: Path | None = None) -> str:
    """Run a program of the tool chain and return what it printed."""
    if shutil.which(argv[0]) is None:
        raise ToolError.missing(argv[0], "to build the firmware", _INSTALL)
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, TIME_LIMIT_S) from error
    if done.returncode != 0:
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
    return done.stdout
