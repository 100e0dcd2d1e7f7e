"""The flash step on the tiny twin of the hil tests, and without a board."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from pipeline.errors import HardwareAbsent, StageError
from pipeline.stage import Target, read_json
from stages.flash.stage import FlashConfig, run

TINY = Path(__file__).parents[2] / "hil" / "tiny_twin"
BUILD_ID = "00112233445566aa"  # as in tiny.c
BOARD = "nucleo_h743zi2"


@pytest.fixture(scope="module")
def tiny_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = tmp_path_factory.mktemp("tiny") / "twin.elf"
    flags = ["-mcpu=cortex-m7", "-mthumb", "-O2", "-ffreestanding", "-nostdlib", "-T", str(TINY / "tiny.ld")]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-o", image, TINY / "tiny.c", TINY / "op_asm.S"], check=True)
    return image


def flash(
    image: Path, tmp_path: Path, build_id: str = BUILD_ID, source: str = "virtual", config: FlashConfig | None = None
):
    footprint = tmp_path / "footprint.json"
    footprint.write_text(json.dumps({"build_id": build_id, "link": {"baud": 115200}}))
    return run.function(
        image, image, image, footprint, config=config or FlashConfig(), target=Target(BOARD, source), out_dir=tmp_path
    )


def test_twin_that_answers_its_build_id_is_flashed(tiny_twin: Path, tmp_path: Path) -> None:
    assert read_json(flash(tiny_twin, tmp_path).flash) == {
        "board": BOARD,
        "source": "virtual",
        "method": "qemu",
        "probe_serial": "",
        "port": "",
        "build_id": BUILD_ID,
        "image_sha256": hashlib.sha256(tiny_twin.read_bytes()).hexdigest(),
    }


def test_another_build_id_is_refused(tiny_twin: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=f"{BOARD} twin: runs build {BUILD_ID}, needed ffffffffffffffff"):
        flash(tiny_twin, tmp_path, "f" * 16)
    assert not (tmp_path / "flash.json").exists()


def test_absent_board_ends_with_exit_code_3(tiny_twin: Path, tmp_path: Path) -> None:
    with pytest.raises(HardwareAbsent, match=f"{BOARD} with probe none: not attached.*--virtual") as caught:
        flash(tiny_twin, tmp_path, source="hardware", config=FlashConfig(probe_serial="none"))
    assert caught.value.exit_code == 3
