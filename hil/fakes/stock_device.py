"""A device with the stock firmware of MLPerf Tiny, weaknesses included: none of our added commands, and no mercy.

Its input buffer has a fixed size and no check: bytes beyond what `db load` announced, an announcement larger than the
buffer, or bytes without any announcement are written past its end, after which nothing more comes from it. CR and LF
are part of a command. There is no checksum and no retry: a lost byte shifts the input, and nobody tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hil.fakes.fake_device import FakeDevice, FakeNetwork, Mishap


class StockDevice(FakeDevice):
    """`crashed` says how the host killed it, if it did."""

    _added = frozenset()

    def __init__(
        self,
        network: FakeNetwork,
        mishaps: Sequence[Mishap] = (),
        *,
        through: Literal["socket", "pty"] = "socket",
        buffer_bytes: int = 4096,
    ) -> None:
        super().__init__(network, mishaps, through=through)
        self._buffer_bytes = buffer_bytes
        self.crashed = ""

    def _counted(self, command: str) -> bytes:
        reply = b"" if self.crashed else super()._counted(command)
        return b"" if self.crashed else reply

    def _take(self, digits: str) -> tuple[str, ...]:
        room = min(self._memory.expected_bytes, self._buffer_bytes) - len(self._memory.input)
        if len(digits) // 2 > room:
            self.crashed = f"{len(digits) // 2} B written where {room} B were left"
            return ()
        return super()._take(digits)
