"""Which files become an image, and how each of them is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from boards import BOARDS_FOLDER
from stages.firmware.build.image import kernel_sources, portable_sources
from stages.firmware.build.toolchain import Toolchain

FIRMWARE = BOARDS_FOLDER / "firmware"
AUDIO = ["audio.c", "base64.c", "commands.c", "mfcc.c", "spectrum.c"]


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


@pytest.mark.parametrize(
    ("written", "audio"),
    [
        ([], []),
        (["front_end.h"], AUDIO),
        (["front_end.h", "stream_settings.h"], [*AUDIO, "stream.c"]),
    ],
)
def test_audio_is_linked_only_where_the_network_hears(written: list[str], audio: list[str], tmp_path: Path) -> None:
    for name in (*written, "model.c", "model.S", "notes.txt"):
        (tmp_path / name).touch()
    found = portable_sources(tmp_path)
    of_audio = [file.name for file in found if file.parent == FIRMWARE / "audio"]
    assert of_audio == audio
    assert names(found)[-2:] == ["model.S", "model.c"]
    core = {file.parent.name for file in found} - {tmp_path.name}
    assert core == {"core", "link", "kernels", "inner", *(["audio"] if audio else [])}


def test_kernels_come_by_name_whatever_folder_they_stand_in() -> None:
    found = names(kernel_sources())
    assert found == sorted(found)
    assert {"conv_2d.c", "fast_dot.c", "packed_channels.c"} <= set(found)


@pytest.mark.parametrize(
    ("file", "optimise", "level"),
    [
        ("kernels/conv_2d.c", "O3", "O3"),
        ("kernels/inner/fast_dot.c", "Os", "Os"),
        ("kernels/small_dot.c", "Os", "O2"),
        ("kernels/inner/packed_channels.c", "O3", "O2"),
        ("core/main.c", "O3", "Os"),
        ("link/protocol.c", "O2", "Os"),
        ("audio/spectrum.c", "O2", "O2"),
    ],
)
def test_what_waits_for_the_host_is_built_for_size(file: str, optimise: str, level: str) -> None:
    assert Toolchain(optimise=optimise, path_names={}).level(FIRMWARE / file) == level
