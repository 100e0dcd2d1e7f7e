"""Finding boards: quick when there are none, right by serial number when there are several."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hil.bench.discovery import AttachedBoard, Identity, attached_devices, find_board
from hil.bench.locks import LENT
from pipeline.errors import HardwareAbsent, HardwareError

F767 = AttachedBoard("nucleo_f767zi", "066AFF01", "/dev/ttyACM0", (Path("/media/NODE_F767ZI"),))
F767_TWO = AttachedBoard("nucleo_f767zi", "066AFF02", "/dev/ttyACM1")
H743 = AttachedBoard("nucleo_h743zi2", "0036001A", "/dev/ttyACM2")
NAMELESS = AttachedBoard("", "0036001B", "/dev/ttyACM3")


@dataclass
class FakePort:
    device: str
    vid: int | None
    serial_number: str | None


PORTS = [
    FakePort("/dev/ttyS0", None, None),
    FakePort("/dev/ttyACM2", 0x0483, "0036001A"),
    FakePort("/dev/ttyACM0", 0x0483, "066aff01"),
    FakePort("/dev/ttyACM3", 0x0483, "0036001B"),
    FakePort("/dev/ttyUSB0", 0x0403, "FTDI1"),
]
IDENTITIES = {
    "066AFF01": Identity("nucleo_f767zi", (Path("/media/NODE_F767ZI"),)),
    "0036001A": Identity("nucleo_h743zi2", ()),
}


def test_probes_are_named_by_what_their_drive_says() -> None:
    found = attached_devices(lambda: PORTS, lambda: IDENTITIES, dict)
    assert [(device.board, device.probe_serial, device.port) for device in found] == [
        ("", "0036001B", "/dev/ttyACM3"),
        ("nucleo_f767zi", "066aff01", "/dev/ttyACM0"),
        ("nucleo_h743zi2", "0036001A", "/dev/ttyACM2"),
    ]
    assert found[1].drives == (Path("/media/NODE_F767ZI"),)


def test_only_a_probe_without_a_drive_is_named_by_pyocd() -> None:
    named = {"0036001B": "disco_f746ng", "066AFF01": "another", "0036001A": "another"}
    found = attached_devices(lambda: PORTS, lambda: IDENTITIES, lambda: named)
    assert [device.board for device in found] == ["disco_f746ng", "nucleo_f767zi", "nucleo_h743zi2"]


def test_drives_are_not_looked_at_without_a_probe() -> None:
    def must_not_be_asked() -> dict[str, Identity]:
        raise AssertionError("mbed-tools was asked although no probe is attached")

    assert attached_devices(lambda: [PORTS[0], PORTS[4]], must_not_be_asked) == ()


def test_asking_imports_nothing_heavy_when_no_probe_is_attached() -> None:
    program = (
        "import sys; from hil.bench import discovery\n"
        "assert discovery.attached_devices(lambda: []) == ()\n"
        "print([name for name in ('mbed_tools', 'numpy', 'serial', 'capstone', 'pydantic') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_board_is_found_by_name() -> None:
    assert find_board("nucleo_h743zi2", [F767, H743]) == H743


def test_absent_board_names_what_is_there_and_the_way_out() -> None:
    with pytest.raises(HardwareAbsent, match="nucleo_h743zi2: not attached, found no ST-LINK; .*--virtual") as caught:
        find_board("nucleo_h743zi2", [])
    assert caught.value.exit_code == 3
    with pytest.raises(HardwareAbsent, match=r"found nucleo_f767zi \(066AFF01\), unknown board \(0036001B\)"):
        find_board("nucleo_h743zi2", [F767, NAMELESS])


def test_two_of_a_kind_need_the_probes_serial_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HardwareError, match="2 are attached .066AFF01, 066AFF02., needed one; set flash.probe_serial"):
        find_board("nucleo_f767zi", [F767, F767_TWO])
    assert find_board("nucleo_f767zi", [F767, F767_TWO], probe_serial="066AFF02") == F767_TWO
    monkeypatch.setenv(LENT, "066AFF02")
    assert find_board("nucleo_f767zi", [F767, F767_TWO]) == F767_TWO


def test_wrong_serial_number_is_absent_hardware() -> None:
    with pytest.raises(HardwareAbsent, match="nucleo_f767zi with probe 99: not attached"):
        find_board("nucleo_f767zi", [F767], probe_serial="99")
