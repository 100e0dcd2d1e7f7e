"""The register model behind a socket, as a device of a first day: what a host would see of a board with faults."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boards import Board
from hil.fakes.background import Background
from hil.link.device_link import DeviceLink, Limits
from pipeline.errors import HardwareAbsent, HardwareError
from stages.firmware.build.image import Images
from tests.boards.stm32.emulated_board import EmulatedBoard
from tests.boards.stm32.register_model import Silicon

QUICK = Limits(reply_s=1.5, infer_s=5.0, sync_s=2.0, sync_attempt_s=0.5, baud_confirm_s=0.5, baud_fall_back_s=0.1)
_POLL_S = 0.02


class ServedBoard(Background):
    """One image on one chip, until it is flashed anew."""

    def __init__(self, image: Path, board: Board, silicon: Silicon, poked: dict[int, bytes] | None = None) -> None:
        super().__init__()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        self._silicon = silicon
        self.emulated = EmulatedBoard(image, board, silicon=silicon, checked=False, poked=poked)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if select.select([self._listener], [], [], _POLL_S)[0]:
                connection, _ = self._listener.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        sent = 0
        try:
            while not self._stopping.is_set():
                if len(self.emulated.usart.sent) > sent:
                    connection.sendall(self._on_the_line(bytes(self.emulated.usart.sent[sent:])))
                    sent = len(self.emulated.usart.sent)
                if not select.select([connection], [], [], _POLL_S)[0]:
                    self.emulated.cycles += int(0.3 * self.emulated.clocks().core_hz)  # nobody talks: time passes
                    self.emulated.run()
                    continue
                received = connection.recv(4096)
                if not received:
                    return
                for byte in self._on_the_line(received):
                    self.emulated.ask(bytes([byte]))
        except OSError:
            return

    def _on_the_line(self, data: bytes) -> bytes:
        if (
            self.emulated.written.get(f"{self.emulated.board.console.uart}_BRR")
            and self.emulated.baud() > self._silicon.most_baud
        ):
            return bytes(byte ^ 0x15 for byte in data)
        return data

    def _close(self) -> None:
        self._listener.close()


class ModelledDevice:
    """`Device` on the register model; time is the model's own."""

    source = "virtual"
    has_chip = True

    def __init__(self, board: Board, silicon: Silicon | None = None, **trouble: object) -> None:
        self._board, self._silicon = board, silicon or Silicon()
        self._trouble = trouble
        self._time = 0.0
        self._served: ServedBoard

    def probe(self) -> str:
        if self._trouble.get("no_probe"):
            raise HardwareAbsent("no ST-LINK found")
        return "register model"

    def probe_firmware(self) -> str | None:
        return str(self._trouble.get("firmware", "V2J37M26"))

    @contextmanager
    def running(self, images: Images) -> Iterator[DeviceLink]:
        if self._trouble.get("refuses_debugger"):
            raise HardwareError("could not be flashed: the debugger is shut out")
        image = self._trouble.get("stale_image") or images.image
        poked = self._trouble.get("poked")
        with (
            ServedBoard(image, self._board, self._silicon, poked(images) if poked else None) as served,
            DeviceLink.open(served.url, name=self._board.name, limits=QUICK) as link,
        ):
            self._served = served
            link.await_boot(QUICK.sync_s)
            if self._trouble.get("debugger_lets_go"):
                served.emulated.debugger_lets_go()
            yield link

    def now(self) -> float:
        return self._time

    def sleep(self, seconds: float) -> None:
        self._time += seconds
        hertz = self._served.emulated.clocks().core_hz
        self._served.emulated.cycles += round(seconds * hertz * (1 + self._silicon.hse_error))
