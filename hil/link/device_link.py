"""The host's side of the serial link: MLPerf Tiny's protocol plus our added commands, as methods.

Inputs are checked by CRC-32, or read back where the device knows no `crc`, as stock firmware does not; a device that
restarts loses its input, so an inference counts only if the input is still there after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from hil.link import replies
from hil.link.dialogue import ATTEMPTS, COMMAND_LIMIT, ENERGY_BAUD, LONG_COMMAND_LIMIT, Dialogue, Limits, Value
from hil.link.replies import Burst, DeviceRestarted, Inference, LayerProfile, LayerTicks, MemoryUse, TensorSeen
from pipeline.errors import DeviceFault, LinkTimeout

__all__ = ["ATTEMPTS", "BYTES_PER_DB", "COMMAND_LIMIT", "ENERGY_BAUD", "LONG_COMMAND_LIMIT", "DeviceLink", "Limits"]

BYTES_PER_DB = 31  # as the stock host; 'db ' + 62 digits + '%' stay below the device's 80 characters


class DeviceLink(Dialogue):
    """An open link to one device; `sync` first."""

    def build_id(self) -> str:
        return self.query_checked("build", replies.build_id)

    def clock_hz(self) -> int:
        return self.query_checked("clock", replies.clock_hz)

    def chip(self) -> dict[str, int]:
        """Registers by name: identity, option bytes, clocks, power."""
        return self.query_checked("chip", replies.chip)

    def memory(self) -> MemoryUse:
        return self.query_checked("memory", replies.memory)

    def output(self) -> bytes:
        """The raw bytes of the last inference's output."""
        return self.query_checked("output", replies.output)

    def results(self) -> tuple[float, ...]:
        """The last inference's output as the stock host wants it: dequantised, three decimals."""
        return self.query_checked("results", replies.results)

    def layers(self) -> tuple[LayerTicks, ...]:
        """Run one inference and return what each op took."""
        return self.layer_profile().ops

    def layer_profile(self) -> LayerProfile:
        """The same, with the front end of an image that has one."""
        return self._timed("layers", replies.layer_profile, self._limits.infer_s)

    def tensor_crc(self, op: int) -> TensorSeen:
        """Run one inference on the loaded input; size and CRC-32 of what this op computed."""
        return self.query_checked(f"tensor {op}", lambda lines: replies.tensor(lines, op), self._limits.infer_s)

    def tensor(self, op: int, timeout_s: float) -> bytes:
        """The same, the bytes themselves."""
        return self.query_checked(f"tensor {op} hex", lambda lines: replies.hex_lines(lines, "m-tensor-"), timeout_s)

    def _timed(self, text: str, parse: Callable[[Sequence[str]], Value], timeout_s: float) -> Value:
        """Times differ from run to run: without `check` there is no second reading to compare with."""
        if self.knows("check"):
            return self.query_checked(text, parse, timeout_s)
        return self.query(text, parse, timeout_s)

    def infer(self, runs: int = 1, warmup: int = 0, timeout_s: float | None = None) -> Inference:
        """Run `warmup` + `runs` inferences on the loaded input, the latter timed."""
        timeout_s = (warmup + runs) * self._limits.infer_s if timeout_s is None else timeout_s
        laps = self.tells_time()
        return self._timed(
            f"infer {runs} {warmup}", lambda lines: replies.inference(lines, runs, warmup, laps), timeout_s
        )

    def burst(self, runs: int) -> Burst:
        """Up to 32 inferences right behind each other, each timed by the counter itself: cycles on a board."""
        self.infer(runs, 0)
        return self._timed("laps", lambda lines: replies.laps(lines, runs), self._limits.reply_s)

    def tells_time(self) -> bool:
        """False for an image in energy mode: it marks beginning and end on its timestamp pin, not in words."""
        if self._tells_time is None:
            self._tells_time = self.query_checked("timestamp", replies.tells_time)
        return self._tells_time

    def load(self, data: bytes) -> None:
        """Send one input and make sure, by its CRC-32, that the device holds these very bytes."""
        self.load_checked(data, lambda: self._send_input(data), "crc")

    def load_checked(self, data: bytes, send: Callable[[], None], crc_command: str) -> None:
        """Let `send` do its work until the device's checksum is that of `data`."""
        wanted, held, trouble = zlib.crc32(data), 0, ""
        for _ in range(ATTEMPTS):
            try:
                send()
            except DeviceRestarted:
                raise
            except (LinkTimeout, DeviceFault) as error:
                trouble = f" (last trouble: {error})"
                self.sync()  # the transfer may still be whole: the checksum decides
            held = self.held_crc(crc_command)
            if held == wanted:
                return
            self.retries += 1
        raise DeviceFault(
            f"{self.name}: input of {len(data)} B has CRC {held:08x} on the device, needed {wanted:08x},"
            f" after {ATTEMPTS} tries; check cable and baud rate{trouble}"
        )

    def held_crc(self, crc_command: str = "crc") -> int:
        """CRC-32 of the input that the device holds; one that cannot tell it prints the input instead."""
        if crc_command != "crc" or self.knows("crc"):
            return self.query(crc_command, replies.crc)
        return zlib.crc32(self.query_twice("db print", replies.printed_input))

    def send_pieces(
        self, command: str, buffer: str, data: bytes, piece_bytes: int, text: Callable[[bytes], str]
    ) -> None:
        """`COMMAND load N`, then `COMMAND text(piece)` for every piece; or into `buffer` at once where a probe can."""
        if self._place(buffer, data):
            replies.single(self.command(f"{command} place {len(data)}"), "m-load-done")
            return
        replies.single(self.command(f"{command} load {len(data)}"), rf"m-\[Expecting {len(data)} bytes\]")
        for start in range(0, len(data), piece_bytes):
            lines = self.command(f"{command} {text(data[start : start + piece_bytes])}")
            if start + piece_bytes < len(data):
                replies.nothing(lines)
            else:
                replies.single(lines, "m-load-done")

    def outputs_of(self, data: bytes, runs: int = 1) -> bytes:
        """Load, infer, fetch; all of it again when the device restarts on the way, since it then forgot the input.

        A network with a state begins with its first one and sees the input so many times.
        """
        return self.on_input(data, lambda: (self.infer(runs, 0), self.output())[1])

    def on_input(self, data: bytes, act: Callable[[], Value]) -> Value:
        """Load, act, and make sure that the device held this input to the end: a restart may go unseen."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.load(data)
                value = act()
                held = self.held_crc()
                if held == zlib.crc32(data):
                    return value
                raise DeviceRestarted(f"{self.name}: no longer holds its input after an inference")
            except DeviceRestarted as error:
                if attempt == ATTEMPTS:
                    raise DeviceFault(f"{error} (it restarted {ATTEMPTS} times)") from error
                self.retries += 1
                self.sync()
        raise AssertionError("unreachable")

    def reset(self) -> None:
        """Restart the device and wait for it."""
        self._port.send("reset%")
        self.boot_lines = ()
        self.sync()

    def _send_input(self, data: bytes) -> None:
        self.send_pieces("db", "input_buffer", data, BYTES_PER_DB, bytes.hex)
