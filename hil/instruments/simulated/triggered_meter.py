"""What the simulated SCPI meters share: armed, triggered, busy for a few polls, and the faults of a reply."""

from __future__ import annotations

from hil.instruments.simulated.scpi_server import ScpiDevice, Vanished, block
from hil.instruments.simulated.timeline import Board, Fault
from hil.instruments.trace import FloatArray

_BUSY_POLLS = 2


class TriggeredMeter(ScpiDevice):
    """Simulated time runs as fast as the host asks: a capture is complete as soon as it was triggered."""

    measuring: int  # bit of the operation status
    waiting: int  # likewise, before the trigger
    item: str  # of binary data: '>f4' or '>f8'

    def __init__(self, board: Board, format_header: str) -> None:
        super().__init__()
        self._board = board
        self._fault: Fault | None = None
        self._busy_polls, self._triggered = 0, False
        self._format = self.setting(format_header, "ASC")
        self.setting("FORMat:BORDer", "NORM")
        self.command("STATus:OPERation:CONDition?", self._operation)

    def _begin(self, on_edge: bool) -> None:
        self._fault, self._busy_polls = self._board.next_fault(), _BUSY_POLLS
        self._triggered = on_edge and self._fault != "no_trigger"

    def _trigger(self, _: str) -> None:
        self._triggered = self._fault != "no_trigger"

    def _operation(self, _: str) -> str:
        self._vanish_if_due()
        if not self._triggered:
            return str(self.waiting)
        self._busy_polls -= 1
        return str(self.measuring if self._busy_polls >= 0 else 0)

    def _vanish_if_due(self) -> None:
        if self._fault == "vanish":
            raise Vanished

    def _reply(self, values: FloatArray) -> bytes | None:
        if self._fault == "silence":
            return None
        if self._fault == "garbage":
            return b"#9?garbage"
        if self._format.get("", "ASC").startswith("REAL"):
            whole = block(values, self.item)
        else:
            whole = ",".join(f"{value:+.8E}" for value in values).encode("ascii")
        return whole[: len(whole) // 2] if self._fault == "torn" else whole
