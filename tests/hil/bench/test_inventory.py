"""What is on the bench: three look-alike boards on disk, fake USB ports, stand-in pyOCD, bench.yaml and locks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hil.bench.bench_file import load_bench
from hil.bench.discovery import AttachedBoard, attached_devices, find_board, identities_of
from hil.bench.inventory import take_inventory
from hil.bench.locks import board_lock
from hil.bench.probes import Probe, pyocd_probes
from pipeline.errors import HardwareAbsent, HardwareError
from stages.tools.boards_listing import described
from tests.hil.bench.fake_drives import put_drive, seen_by_mbed_tools
from tests.hil.bench.stub_tools import put_tools
from tests.hil.bench.test_discovery import FakePort

SERIALS = ("066AFF01", "066AFF02", "066AFF03")
BENCH = """
boards:
  066AFF02:
    instrument: n6705
    point: mcu
    address: TCPIP::192.0.2.7::5025::SOCKET
    voltage: 3.3V
  0036FFFF:
    instrument: ppk2
    point: mcu
    address: C0FFEE
    voltage: 3.3V
"""


@pytest.fixture
def look_alikes(tmp_path: Path) -> tuple[AttachedBoard, ...]:
    """Three boards of a kind: ports as pyserial tells them, drives as mbed-tools reads them."""
    drives = {serial: put_drive(tmp_path / f"NODE_{serial}", "nucleo_f767zi") for serial in SERIALS}
    ports = [FakePort(f"/dev/ttyACM{index}", 0x0483, serial) for index, serial in enumerate(SERIALS)]
    seen = [seen_by_mbed_tools(serial, drives[serial], "/dev/null") for serial in reversed(SERIALS)]
    return attached_devices(lambda: ports, lambda: identities_of(seen))


def test_three_look_alikes_are_told_apart_by_serial_number(look_alikes, tmp_path: Path) -> None:
    assert [(one.board, one.probe_serial, one.port) for one in look_alikes] == [
        ("nucleo_f767zi", serial, f"/dev/ttyACM{index}") for index, serial in enumerate(SERIALS)
    ]
    chosen = find_board("nucleo_f767zi", look_alikes, probe_serial="066aff02")
    assert (chosen.port, chosen.drives) == ("/dev/ttyACM1", (tmp_path / "NODE_066AFF02",))
    with pytest.raises(HardwareError, match="3 are attached"):
        find_board("nucleo_f767zi", look_alikes)
    with pytest.raises(HardwareAbsent, match="with probe 066AFF09: not attached"):
        find_board("nucleo_f767zi", look_alikes, probe_serial="066AFF09")


def test_board_without_a_mounted_drive_is_named_by_pyocd(tmp_path: Path) -> None:
    put_tools(tmp_path, {"0036001A": {"name": "NUCLEO-H743ZI2", "target": "stm32h743xx", "config": ""}}, "pyocd")
    assert pyocd_probes(str(tmp_path / "pyocd")) == (Probe("0036001A", "nucleo_h743zi2", "STM32 STLink"),)
    named = {"0036001A": "nucleo_h743zi2"}
    found = attached_devices(lambda: [FakePort("/dev/ttyACM0", 0x0483, "0036001A")], dict, lambda: named)
    assert found == (AttachedBoard("nucleo_h743zi2", "0036001A", "/dev/ttyACM0"),)


def test_inventory_joins_ports_drives_probes_wiring_and_locks(look_alikes, tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text(BENCH)
    probes = (Probe("066AFF01", "nucleo_f767zi", "STLink"), Probe("0036001A", "nucleo_h743zi2", "STLink V3"))
    with board_lock("066AFF03", folder=tmp_path / "locks", purpose="measure kws"):
        found = take_inventory(
            load_bench(tmp_path / "bench.yaml"),
            devices=lambda: look_alikes,
            probes=lambda: probes,
            lock_folder=tmp_path / "locks",
        )
    assert [one.probe_serial for one in found.probes] == [*SERIALS, "0036001A"]
    assert [one.port for one in found.probes] == ["/dev/ttyACM0", "/dev/ttyACM1", "/dev/ttyACM2", ""]
    assert [one.instrument for one in found.probes] == ["", "n6705 TCPIP::192.0.2.7::5025::SOCKET", "", ""]
    assert [bool(one.held_by) for one in found.probes] == [False, False, True, False]
    assert found.probes[2].held_by.endswith("for measure kws")
    assert found.wired_but_absent == ("0036FFFF",)
    answer = described(found, "bench.yaml")
    assert "bench.yaml: probe 0036FFFF is not attached" in answer.text
    assert json.loads(json.dumps(answer.record))["probes"][1]["drives"] == [str(tmp_path / "NODE_066AFF02")]


def test_source_that_cannot_be_asked_is_named_and_the_rest_listed() -> None:
    def broken() -> tuple[Probe, ...]:
        raise HardwareError("pyocd: no list of the probes within 20 s; is a probe stuck?")

    found = take_inventory(None, devices=lambda: [AttachedBoard("", "1", "/dev/ttyACM0")], probes=broken)
    assert [one.probe_serial for one in found.probes] == ["1"]
    assert "not everything could be asked: pyocd: no list" in described(found, "bench.yaml").text


def test_empty_bench_says_so_and_names_the_twins() -> None:
    answer = described(take_inventory(None, devices=lambda: (), probes=lambda: ()), "bench.yaml")
    assert answer.text.startswith(
        "no debug probe is attached; every board also runs as a twin: add --virtual\nsupported: "
    )
    assert answer.record["probes"] == ()


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo nonsense", "answered no list of probes"),
        ('printf %s \'{"status": 1, "error": "usb\\nno backend"}\'', r"cannot list the probes \(no backend\)"),
        ("exec /bin/sleep 30", "no list of the probes within 0.3 s"),
    ],
)
def test_pyocd_that_cannot_list_is_an_error_in_words(tmp_path: Path, script: str, sentence: str) -> None:
    program = tmp_path / "pyocd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(HardwareError, match=sentence):
        pyocd_probes(str(program), timeout_s=0.3 if "sleep" in script else 5.0)
