"""From a compiled model to images: one for the board, one for its twin, from the same objects.

Only the code behind boards/firmware/core/board.h differs between the two: what the twin executes, the board would too.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from boards import BOARDS_FOLDER, Board
from stages.firmware.build.toolchain import Toolchain, copy_image
from stages.firmware.front_end import FrontEnd
from stages.firmware.front_end_source import front_end_header, front_end_source, stream_settings
from stages.firmware.link_settings import LinkSettings
from stages.firmware.model_source import CompiledModel, model_assembly, model_header, model_source
from stages.firmware.placement import Placement

FIRMWARE = BOARDS_FOLDER / "firmware"
VIRTUAL = BOARDS_FOLDER / "virtual"
INCLUDES = (FIRMWARE, FIRMWARE / "core", FIRMWARE / "link")  # what the firmware's own files name headers from

BUILD_ID_DIGITS = 16
_FLASH = re.compile(r"(FLASH \(rx\) : .* LENGTH = )\w+")  # in a memory.ld
KERNEL_FOLDER = "kernels-"  # how the name of the folder begins that holds their objects


@dataclass(frozen=True, kw_only=True)
class Images:
    """What was built."""

    image: Path
    image_bin: Path
    image_hex: Path
    twin: Path
    build_id: str
    compiler: str


def write_sources(
    model: CompiledModel,
    name: str,
    placement: Placement,
    folder: Path,
    front_end: FrontEnd | None = None,
    more_macros: str = "",
) -> None:
    """model.c, model.h; model.S with generated assembly, front_end.c and .h with a front end."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = front_end.kind if front_end else "none"
    (folder / "model.h").write_text(model_header(model, name, kind, placement, more_macros))
    (folder / "model.c").write_text(model_source(model, placement))
    if assembly := model_assembly(model):
        (folder / "model.S").write_text(assembly)
    if front_end is not None:
        (folder / "front_end.h").write_text(front_end_header(front_end))
        (folder / "front_end.c").write_text(front_end_source(front_end))
        if front_end.stream is not None:
            (folder / "stream_settings.h").write_text(stream_settings(front_end.stream))


def portable_sources(generated: Path) -> list[Path]:
    """Everything that a board and its twin share, for what `write_sources` wrote."""
    audio = _sources(FIRMWARE / "audio") if (generated / "front_end.h").exists() else []
    if not (generated / "stream_settings.h").exists():
        audio = [source for source in audio if source.stem != "stream"]
    return [*_sources(FIRMWARE / "core", FIRMWARE / "link"), *kernel_sources(), *audio, *_sources(generated)]


def kernel_sources() -> list[Path]:
    """The C of every kernel."""
    return _sources(*(FIRMWARE / "kernels" / folder for folder in ("", "inner", "more", "wide")))


def kernel_objects(optimise: str, fpu: str) -> dict[Path, Path]:
    """Every kernel's object, by source: no network changes them, so that a process compiles them once."""
    sources = kernel_sources()
    return dict(zip(sources, _kernel_objects(optimise, fpu, _contents(sources)).files, strict=True))


@dataclass(frozen=True, eq=False)
class _Objects:
    files: list[Path]
    folder: tempfile.TemporaryDirectory[str]  # lives as long as this


@cache
def _kernel_objects(optimise: str, fpu: str, _contents: str) -> _Objects:
    folder = tempfile.TemporaryDirectory(prefix=KERNEL_FOLDER)
    tools = Toolchain(optimise=optimise, path_names={BOARDS_FOLDER: "boards"}, fpu=fpu)
    files = tools.compile_all(kernel_sources(), INCLUDES, {}, Path(folder.name).resolve() / "objects")
    return _Objects(files, folder)


def _contents(sources: Iterable[Path]) -> str:
    """Of sources and headers: who changes a kernel while the process lives gets the new one."""
    files = [*sources, *sorted(FIRMWARE.rglob("*.h"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def build_images(
    board: Board,
    generated: Path,
    optimise: str,
    out_dir: Path,
    link: LinkSettings | None = None,
    *,
    bringup_stage: int = 0,
    flash_bytes: int | None = None,
) -> Images:
    """Compile what `write_sources` wrote together with the firmware and link it for the board and for its twin.

    Without `link`: the tensor's own bytes at the board's usual rate, times in words.
    `bringup_stage` 1 to 3 makes an image of a first day, with its own commands (boards/firmware/stm32/board.c).
    `flash_bytes`: as if board and twin had so much flash, for images that are looked at and never run.
    """
    support = _with_subfolders(FIRMWARE / board.support)
    shared = [*portable_sources(generated), *device_sources(optimise)]
    shared += _sources(FIRMWARE / "bringup") if bringup_stage else []
    real, twin = [*_sources(*support), *_sources(board.folder)], _sources(VIRTUAL)
    scripts = {
        folder: [_memory_script(folder, flash_bytes, out_dir), FIRMWARE / "core" / "sections.ld"]
        for folder in (board.folder, VIRTUAL)
    }
    defines = {
        "BOARD_NAME": f'"{board.name}"',
        "BOARD_CLOCK_HZ": f"{board.clock_hz}u",
        "BOARD_BAUD": f"{link.baud if link else board.baud()}u",
        "BOARD_MEASURES_ENERGY": f"{link is not None and link.mode == 'energy':d}",
        "INPUT_IS_UINT8": f"{link is not None and link.input == 'uint8':d}",
    }
    of_all = {name: defines[name] for name in ("INPUT_IS_UINT8", "BOARD_MEASURES_ENERGY")}
    if bringup_stage:
        of_all["BRINGUP_STAGE"] = defines["BRINGUP_STAGE"] = f"{bringup_stage}"
    tools = Toolchain(optimise=optimise, path_names={BOARDS_FOLDER: "boards", generated: "generated"}, fpu=board.fpu)
    compiler = tools.version()
    files = [*shared, *real, *twin, *generated.glob("*.h"), FIRMWARE / "core" / "sections.ld"]
    files += [board.folder / "memory.ld", VIRTUAL / "memory.ld"]
    files += [*FIRMWARE.rglob("*.h"), *board.folder.glob("*.h"), *VIRTUAL.glob("*.h")]
    build_id = _build_id(files, generated, [compiler, *tools.flags, *(f"{k}={v}" for k, v in defines.items())])
    (generated / "build_id.h").write_text(
        f'#ifndef BUILD_ID_H\n#define BUILD_ID_H\n#define BUILD_ID "{build_id}"\n#endif\n'
    )
    includes = [*INCLUDES, generated, *support, board.folder]
    with tempfile.TemporaryDirectory(dir=out_dir) as scratch:
        objects = Path(scratch).resolve()
        kernels = kernel_objects(optimise, board.fpu)
        own = [source for source in shared if source not in kernels]
        common = {
            **kernels,
            **dict(zip(own, tools.compile_all(own, includes, of_all, objects / "shared"), strict=True)),
        }
        on_board = tools.compile_all(real, includes, defines, objects / "board")
        on_twin = tools.compile_all(twin, includes, defines, objects / "twin")
        image = tools.link(
            [*(common[source] for source in shared), *on_board], scripts[board.folder], out_dir / "firmware.elf"
        )
        twin_image = tools.link(
            [*(common[source] for source in shared), *on_twin], scripts[VIRTUAL], out_dir / "twin.elf"
        )
    return Images(
        image=image,
        image_bin=copy_image(image, "binary", out_dir / "firmware.bin"),
        image_hex=copy_image(image, "ihex", out_dir / "firmware.hex"),
        twin=twin_image,
        build_id=build_id,
        compiler=compiler,
    )


def _memory_script(folder: Path, flash_bytes: int | None, out_dir: Path) -> Path:
    """The memory of a board or of the twin; with another flash if there is to be one."""
    script = folder / "memory.ld"
    if flash_bytes is None:
        return script
    text, found = _FLASH.subn(rf"\g<1>{flash_bytes}", script.read_text())
    assert found == 1, script
    own = out_dir / f"{folder.name}.ld"
    own.write_text(text)
    return own


def device_sources(optimise: str) -> list[Path]:
    """What stands in for the C library: short strings always, short copies where speed is not all."""
    names = ("strings", "memory") if optimise == "Os" else ("strings",)
    return [FIRMWARE / "device" / f"{name}.c" for name in names]


def _with_subfolders(folder: Path) -> list[Path]:
    return [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]


def _sources(*folders: Path) -> list[Path]:
    """By name: the order of the objects, and so of the code in the image, does not depend on the folders."""
    files = [file for folder in folders for suffix in ("*.c", "*.S") for file in folder.glob(suffix)]
    return sorted(files, key=lambda file: file.name)


def _build_id(files: Iterable[Path], generated: Path, settings: Iterable[str]) -> str:
    """Identifies an image by what it is made from."""
    named = {
        (f"generated/{file.name}" if file.parent == generated else file.relative_to(BOARDS_FOLDER).as_posix()): file
        for file in files
    }
    digest = hashlib.sha256("\0".join(settings).encode())
    for name, file in sorted(named.items()):
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:BUILD_ID_DIGITS]
