"""A small network as firmware: for the host under sanitizers, and as images for both boards and their twins."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boards import board_names, load_board
from stages.firmware.build.image import FIRMWARE, INCLUDES, Images, build_images, portable_sources, write_sources
from stages.firmware.build.toolchain import COMPILER
from stages.firmware.front_end import FrontEnd
from stages.firmware.model_source import compile_model
from stages.firmware.placement import Placement
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import Graph
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.front_ends import Task, make_task, stream_front_end
from tests.stages.graph.int8_graphs import residual_network

NOT_PORTABLE = ("main", "start", "fault", "mpu")  # main() is built on its own, the others are the core's
BUILD_ID = "0123456789abcdef"
HOST_FLAGS = (
    *("gcc", "-std=c11", "-g", "-O1", "-fwrapv", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "-fsanitize-sections=.bulk,.fast",  # else what placement.h puts into a section of its own would go unguarded
    *("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow", "-Wdouble-promotion"),
    *(f"-I{folder}" for folder in INCLUDES),
)


@pytest.fixture(scope="session")
def network() -> Graph:
    return residual_network(seed=3)


def build_host_firmware(network: Graph, folder: Path, front_end: FrontEnd | None = None) -> Path:
    """The portable firmware as a program on stdin and stdout; an out-of-bounds access ends it with an error."""
    placement = Placement(region="dtcm", macro="PLACE_FAST")
    write_sources(compile_model(network), "kws01", placement, folder, front_end)
    (folder / "build_id.h").write_text(f'#define BUILD_ID "{BUILD_ID}"\n')
    program = folder / "firmware"
    host_board = Path(__file__).with_name("host_board.c")
    main = folder / "main.o"
    flags = [*HOST_FLAGS, f"-I{folder}"]
    sources = [source for source in portable_sources(folder) if source.stem not in NOT_PORTABLE]
    for argv in (
        [*flags, "-Dmain=firmware_main", "-c", str(FIRMWARE / "core" / "main.c"), "-o", str(main)],
        [*flags, *map(str, sources), str(host_board), str(main), "-o", str(program)],
    ):
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="session")
def host_firmware(network: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_host_firmware(network, tmp_path_factory.mktemp("host_firmware"))


@pytest.fixture(scope="session")
def audio_task() -> Task:
    return make_task()


@pytest.fixture(scope="session")
def audio_host_firmware(audio_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With every command there is."""
    front_end = stream_front_end(audio_task)
    return build_host_firmware(audio_task.graph, tmp_path_factory.mktemp("audio_firmware"), front_end)


MAPPING_COMPILER = """#!/bin/sh
for output; do :; done
case "$output" in *.elf) set -- "$@" "-Wl,-Map=$output.map";; esac
exec {compiler} "$@"
"""


@contextmanager
def mapping_compiler(folder: Path) -> Iterator[None]:
    """The compiler under its own name, which also has the linker write a map beside the image."""
    compiler = shutil.which(COMPILER)
    assert compiler, "arm-none-eabi-gcc is needed; make system installs it"
    (folder / COMPILER).write_text(MAPPING_COMPILER.format(compiler=compiler))
    (folder / COMPILER).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def bringup_images(images: dict[str, Firmware], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Images]:
    """The same network in an image of a first day, with everything switched on."""
    built = {}
    for name, firmware_of in images.items():
        folder = tmp_path_factory.mktemp(f"bringup_{name}")
        shutil.copytree(firmware_of.generated, folder / "generated")
        built[name] = build_images(load_board(name), folder / "generated", "O2", folder, bringup_stage=3)
    return built


@pytest.fixture(scope="session")
def images(network: Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Firmware]:
    """Built by the real step, once for every board, with linker maps."""
    folder = tmp_path_factory.mktemp("images")
    model = folder / "model.tflite"
    model.write_bytes(write_tflite(network, "test"))
    built = {}
    with mapping_compiler(tmp_path_factory.mktemp("bin")):
        for board in board_names():
            (folder / board).mkdir()
            config = FirmwareConfig(model_name="kws01")
            built[board] = firmware.function(model, None, config=config, board=board, out_dir=folder / board)
    return built
