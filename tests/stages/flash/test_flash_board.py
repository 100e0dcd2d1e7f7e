"""Flashing an attached board: a stand-in pyOCD, and a fake device that answers with what was flashed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hil.bench.discovery import AttachedBoard
from hil.bench.flasher import Image
from hil.bench.locks import board_lock
from hil.fakes.fake_device import FakeDevice, FakeNetwork
from pipeline.errors import HardwareError, StageError
from stages.flash.proof import BoardWanted, flash_board
from tests.hil.bench.stub_tools import put_tools

SERIAL = "066AFF02"
F7 = {"target": "stm32f767zi", "config": "board/st_nucleo_f7.cfg"}


class Programmable(FakeNetwork):
    """Its build id is what the stand-in tool has written last."""

    def __getattribute__(self, name: str) -> object:
        if name == "build_id":
            flashed = Path(object.__getattribute__(self, "build_id"))
            return flashed.read_text() if flashed.exists() else "f" * 16
        return object.__getattribute__(self, name)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    put_tools(tmp_path, {"066AFF01": F7, SERIAL: F7}, "pyocd")
    return tmp_path


def image(folder: Path, build_id: str) -> Image:
    (folder / "firmware.elf").write_text(build_id)
    return Image(folder / "firmware.elf", folder / "firmware.elf")


def attached(device: FakeDevice) -> list[AttachedBoard]:
    return [AttachedBoard("nucleo_f767zi", "066AFF01", "/dev/null"), AttachedBoard("nucleo_f767zi", SERIAL, device.url)]


def wanted(folder: Path) -> BoardWanted:
    return BoardWanted("nucleo_f767zi", SERIAL, lock_folder=folder / "locks")


def test_board_is_flashed_once_and_an_unchanged_image_not_again(tools: Path) -> None:
    build_id = "00112233445566bb"
    with FakeDevice(Programmable(infer=bytes, build_id=str(tools / f"{SERIAL}.flash"))) as device:
        first = flash_board(image(tools, build_id), wanted(tools), build_id, attached(device))
        asked = [command for command in device.commands if not command.startswith("sync") and command]
        assert asked.index("reset") < len(asked) - 1 - asked[::-1].index("build"), "reset after the debugger let go"
        (tools / "pyocd.arguments").unlink()
        second = flash_board(image(tools, build_id), wanted(tools), build_id, attached(device))
        assert not (tools / "pyocd.arguments").exists(), "the tool was called for an image that runs already"
    assert (first.method, first.probe_serial, first.build_id) == ("pyocd", SERIAL, build_id)
    assert second.method == "unchanged"
    assert not (tools / "066AFF01.flash").exists()


def test_board_that_still_runs_something_else_afterwards_is_not_taken_for_flashed(tools: Path) -> None:
    with (
        FakeDevice(FakeNetwork(infer=bytes, build_id="a" * 16)) as device,
        pytest.raises(StageError, match=f"nucleo_f767zi: runs build {'a' * 16}, needed {'b' * 16}"),
    ):
        flash_board(image(tools, "b" * 16), wanted(tools), "b" * 16, attached(device))


def test_board_in_use_by_another_job_is_not_flashed(tools: Path) -> None:
    with (
        FakeDevice(FakeNetwork(infer=bytes)) as device,
        board_lock(SERIAL, folder=tools / "locks", purpose="a measurement"),
        pytest.raises(HardwareError, match=f"board {SERIAL}: in use now, held by .* for a measurement"),
    ):
        flash_board(image(tools, "b" * 16), wanted(tools), "b" * 16, attached(device))
    assert not (tools / "pyocd.arguments").exists()
    assert board_lock(SERIAL, folder=tools / "locks").holder() is None
