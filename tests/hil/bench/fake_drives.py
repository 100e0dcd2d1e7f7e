"""ST-LINK drives as folders: the marker files of the real ones, read by the real mbed-tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CODES = {"nucleo_f767zi": "0818", "nucleo_h743zi2": "0836"}


def put_drive(folder: Path, board: str) -> Path:
    """A drive as an ST-LINK/V2-1 shows it."""
    folder.mkdir(parents=True)
    (folder / "DETAILS.TXT").write_text("Version: 0221\nBuild:   Jul 16 2018 16:12:20\n")
    target = f"https://mbed.org/device/?code={CODES[board]}02215071B3F0E1A2F4C8D9E0"
    (folder / "MBED.HTM").write_text(
        f'<html><head><meta http-equiv="refresh" content="0; url={target}"/></head><body></body></html>\n'
    )
    return folder


def seen_by_mbed_tools(serial: str, drive: Path, port: str) -> Any:
    """What mbed-tools makes of such a drive on USB; its own parser and its own table of boards are at work."""
    from mbed_tools.devices._internal.candidate_device import CandidateDevice
    from mbed_tools.devices.device import Device

    return Device.from_candidate(
        CandidateDevice(
            product_id="0x374b", vendor_id="0x0483", serial_number=serial, mount_points=(drive,), serial_port=port
        )
    )
