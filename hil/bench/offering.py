"""The boards of this machine for `pipeline worker`: which there are, their locks, and how one is lent to a job."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hil.bench.discovery import attached_devices, probe_serials
from hil.bench.locks import LENT, Lock, board_lock

_ASK_AGAIN_S = 30.0


class Offering:
    """Asked every few seconds while boards are at work: only a probe that is new is looked at more closely."""

    def __init__(self) -> None:
        self._boards: dict[str, str] = {}
        self._asked = -_ASK_AGAIN_S

    def boards(self) -> dict[str, str]:
        """Probe serial number -> board, of those whose board can be told."""
        serials = probe_serials()
        if serials - self._boards.keys() and time.monotonic() - self._asked > _ASK_AGAIN_S:
            self._asked = time.monotonic()
            self._boards |= {device.probe_serial: device.board for device in attached_devices() if device.board}
        return {serial: self._boards[serial] for serial in sorted(serials & self._boards.keys())}

    def lock(self, serial: str, purpose: str) -> Lock:
        return board_lock(serial, purpose=purpose)

    def environment(self, serial: str) -> Mapping[str, str]:
        """For processes that may work with a board while this one holds its lock."""
        return {LENT: serial}
