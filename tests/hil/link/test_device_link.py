"""The link against a fake device that speaks the real bytes, well behaved and not."""

from __future__ import annotations

import socket
import time
import zlib

import pytest

import boards
from hil.fakes.background import Background
from hil.fakes.fake_device import BOOT_LINES, FakeDevice, FakeNetwork, Mishap, MishapKind, _as_bytes
from hil.link.device_link import ENERGY_BAUD, DeviceLink, Limits
from hil.link.line_port import EndlessLine, LinePort
from hil.link.replies import Inference
from pipeline.errors import DeviceFault, HardwareAbsent, LinkTimeout

INPUT = bytes(range(256)) + b"tail"


def rotated(data: bytes) -> bytes:
    """A 'network' whose output shows every byte of its input's beginning."""
    return bytes((7 * byte + 3) % 256 for byte in data[:40])


NETWORK = FakeNetwork(infer=rotated, layer_ticks=(1_000_000, 250_000))


IMPATIENT = Limits(reply_s=0.3, infer_s=0.3, sync_s=5.0, sync_attempt_s=0.3, baud_confirm_s=0.3, baud_fall_back_s=0.6)


def connected(device: FakeDevice) -> DeviceLink:
    return DeviceLink.open(device.url, limits=IMPATIENT)


@pytest.mark.parametrize("through", ["socket", "pty"])
def test_every_query_returns_what_the_device_holds(through) -> None:
    with FakeDevice(NETWORK, through=through) as device, connected(device) as link:
        link.sync()
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert [layer.ticks for layer in link.layers()] == [1_000_000, 250_000]
        assert link.build_id() == "0123456789abcdef"
        assert link.clock_hz() == 216_000_000
        assert link.memory().stack_high_water_bytes == 512
        assert link.results()[:2] == (0.012, 0.039)
        assert link.infer(3, 1).elapsed_us == 3 * 1_250_000 // 216
        assert link.retries == 0


def test_input_goes_out_in_pieces_of_31_bytes() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        pieces = [command for command in device.commands if command.startswith("db ") and "load" not in command]
    assert "".join(piece.removeprefix("db ") for piece in pieces) == INPUT.hex()
    assert {len(piece) for piece in pieces[:-1]} == {len("db ") + 2 * 31}
    assert f"db load {len(INPUT)}" in device.commands


def test_boot_message_is_kept_whatever_comes_before_the_sync() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        time.sleep(0.05)
        link.sync()
        assert link.boot_lines == ("m-timestamp-mode-performance", "m-lap-us-0", "m-init-done")


MISHAPS = [("silence", 0), ("doubled", 0), ("not_ready", 0)]
MISHAPS += [(kind, position) for kind in ("torn", "flipped", "deaf") for position in (0, 5, 12)]


@pytest.mark.parametrize(("kind", "position"), MISHAPS)
@pytest.mark.parametrize("command", ["db load", "db 00", "crc", "infer", "output", "sync"])
def test_one_mishap_costs_a_retry_and_never_a_wrong_output(kind: MishapKind, command: str, position: int) -> None:
    mishap = Mishap(kind, command, position=position)
    with FakeDevice(NETWORK, [mishap], through="pty") as device, connected(device) as link:
        link.sync()
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert mishap.times == 0, "the mishap did not happen"


# Positions of digits: the line stays well formed, only its value is wrong.
DIGITS = [("output", 12), ("infer", 59), ("infer", 71), ("layers", 13), ("clock", 11), ("build", 12), ("memory", 12)]


@pytest.mark.parametrize(("command", "position"), DIGITS)
def test_digit_changed_on_its_way_is_noticed_by_the_replys_checksum(command: str, position: int) -> None:
    with FakeDevice(NETWORK, [Mishap("flipped", command, position=position)]) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        asked = {"output": link.output, "infer": link.infer, "layers": link.layers, "clock": link.clock_hz}
        asked |= {"build": link.build_id, "memory": link.memory}
        if command == "output":
            link.infer()
        spoilt = asked[command]()
        assert link.retries == 1, "the flipped digit was not noticed"
        again = asked[command]()
        if isinstance(spoilt, Inference) and isinstance(again, Inference):
            spoilt, again = spoilt.elapsed_us, again.elapsed_us
        assert spoilt == again


@pytest.mark.parametrize("position", [9, 12, 16])
def test_damaged_checksum_is_asked_for_again(position: int) -> None:
    mishap = Mishap("flipped", "check", skip=1, position=position)  # the first one asks whether there is such a command
    with FakeDevice(NETWORK, [mishap]) as device, connected(device) as link:
        link.sync()
        assert link.build_id() == NETWORK.build_id
        assert device.commands.count("build") == 1
        assert mishap.times == 0


def test_restart_that_nobody_saw_is_found_by_the_inputs_checksum() -> None:
    # The boot message is lost with the reply: all that tells is an input that is gone.
    network = FakeNetwork(infer=lambda data: rotated(data or bytes(40)))
    with UnseenRestart(network, [Mishap("reset", "infer")]) as device, connected(device) as link:
        link.sync()
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert device.commands.count(f"db load {len(INPUT)}") == 2


class Greeting(Background):
    """Says its lines to whoever connects, and nothing else."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text, self._listener = text, socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        with self._listener.accept()[0] as connection:
            connection.sendall(self._text)
            self._stopping.wait(5)

    def _close(self) -> None:
        self._listener.close()


BOOT = ("m-timestamp-mode-performance", "m-lap-us-0", "m-init-done")


@pytest.mark.parametrize(
    ("lines", "boot_lines"),
    [
        (("noise", *BOOT), BOOT),
        ((*BOOT, *BOOT), BOOT),
        (("m-timestamp-mode-energy", "m-init-done", *BOOT, "m-lap-us-1"), BOOT),
        (("m-timestamp-mode-energy", "m-timestamp-mode-performance", "m-init-done"), BOOT[::2]),
        (BOOT[1:], ()),
        (BOOT[:2], ()),
    ],
)
def test_the_last_whole_boot_message_is_kept(lines: tuple[str, ...], boot_lines: tuple[str, ...]) -> None:
    with Greeting(_as_bytes((*lines, "m-ready"))) as device, DeviceLink.open(device.url) as link:
        link.await_boot(3.0)
        assert link.boot_lines == boot_lines


def test_a_silent_device_is_left_to_the_sync() -> None:
    with Greeting(_as_bytes(BOOT)) as device, DeviceLink.open(device.url) as link:
        started = time.monotonic()
        link.await_boot(0.2)
        assert 0.15 < time.monotonic() - started < 2.0
        assert link.boot_lines == ()


def test_the_line_of_a_large_output_is_read_whole() -> None:
    line = b"m-results-[" + b",".join([b"0.125"] * 18_432) + b"]\r\n"
    with Greeting(line) as device:
        port = LinePort(device.url, 115200)
        assert port.line(time.monotonic() + 20) == line
        port.close()


def test_bytes_without_a_line_end_are_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hil.link.line_port.LINE_LIMIT_BYTES", 65536)
    with Greeting(b"y" * 65537 + b"next\nlast\n") as device:
        port = LinePort(device.url, 115200)
        with pytest.raises(EndlessLine, match="65536 B without a line end; check the baud rate"):
            port.line(time.monotonic() + 20)
        assert [port.line(time.monotonic() + 5) for _ in range(2)] == [b"next\n", b"last\n"]
        assert port.line(time.monotonic() + 0.1) is None
        port.close()


def test_an_inference_may_take_its_time_and_no_more() -> None:
    hasty = Limits(reply_s=0.3, infer_s=0.05, sync_s=5.0, sync_attempt_s=0.3)
    with (
        FakeDevice(NETWORK, [Mishap("silence", "infer", times=99)]) as device,
        DeviceLink.open(device.url, limits=hasty) as link,
    ):
        link.sync()
        with pytest.raises(LinkTimeout, match=r"no m-ready to 'infer 2 1' within 0\.15 s"):
            link.infer(2, 1)
        with pytest.raises(LinkTimeout, match=r"no m-ready to 'infer 1 0' within 0\.07 s"):
            link.infer(timeout_s=0.07)


def test_both_rooms_know_the_same_rate_of_an_image_for_energy() -> None:
    assert ENERGY_BAUD == boards.ENERGY_BAUD == 9600


class UnseenRestart(FakeDevice):
    def _reply(self, command: str) -> bytes:
        reply = super()._reply(command)
        return b"" if reply == _as_bytes(BOOT_LINES) else reply


def test_lost_input_byte_is_found_by_its_checksum_and_sent_again() -> None:
    with FakeDevice(NETWORK, [Mishap("deaf", "db 00", position=4)]) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        assert device.commands.count(f"db load {len(INPUT)}") == 2
        assert link.retries == 1


@pytest.mark.parametrize("command", ["db 00", "infer", "output", "crc"])
def test_restart_on_the_way_repeats_the_whole_inference(command: str) -> None:
    with FakeDevice(NETWORK, [Mishap("reset", command)]) as device, connected(device) as link:
        link.sync()
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert device.commands.count(f"db load {len(INPUT)}") == 2
        assert link.retries == 1


@pytest.mark.parametrize("command", ["build", "clock", "memory", "check"])
def test_restart_during_a_question_that_needs_no_input_costs_a_retry(command: str) -> None:
    with FakeDevice(NETWORK, [Mishap("reset", command)]) as device, connected(device) as link:
        link.sync()
        assert (link.build_id(), link.clock_hz()) == (NETWORK.build_id, NETWORK.clock_hz)
        assert link.memory().stack_bytes == 4096
        assert link.retries == 1


def test_restart_during_a_timed_inference_is_an_error_not_a_time() -> None:
    with FakeDevice(NETWORK, [Mishap("reset", "infer")]) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        with pytest.raises(DeviceFault, match="restarted during 'infer 1 0'; is its supply stable"):
            link.infer()


def test_device_that_restarts_every_time_is_reported() -> None:
    with FakeDevice(NETWORK, [Mishap("reset", "infer", times=99)]) as device, connected(device) as link:
        link.sync()
        with pytest.raises(DeviceFault, match="it restarted 4 times"):
            link.outputs_of(INPUT)


def test_silent_device_ends_in_a_timeout_that_names_command_and_limit() -> None:
    with FakeDevice(NETWORK, [Mishap("silence", "build", times=99)]) as device, connected(device) as link:
        link.sync()
        started = time.monotonic()
        with pytest.raises(LinkTimeout, match="no m-ready to 'build' within 0.3 s, nothing was received.*sent 4 times"):
            link.build_id()
        assert time.monotonic() - started < 5


def test_device_that_never_answers_a_sync_is_reported_within_the_limit() -> None:
    with FakeDevice(NETWORK, [Mishap("silence", "", times=99)]) as device, connected(device) as link:
        started = time.monotonic()
        with pytest.raises(LinkTimeout, match="no sync within 1.5 s, last line was 'm-ready'"):
            link.sync(timeout_s=1.5)
        assert time.monotonic() - started < 3


def test_input_that_never_arrives_whole_is_reported_with_both_checksums() -> None:
    with FakeDevice(NETWORK, [Mishap("deaf", "db 00", times=99)]) as device, connected(device) as link:
        link.sync()
        with pytest.raises(DeviceFault, match=f"needed {zlib.crc32(INPUT):08x}, after 4 tries; check cable"):
            link.load(INPUT)


def test_output_that_differs_at_every_reading_is_reported() -> None:
    with FakeDevice(NETWORK, [Mishap("flipped", "output", times=9, position=13)]) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        link.infer()
        with pytest.raises(DeviceFault, match="the reply to 'output' arrived with CRC .* sent 4 times"):
            link.output()


def test_refused_command_is_a_fault_with_the_devices_own_words() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        link.sync()
        with pytest.raises(DeviceFault, match=r"refused 'infer 0 0': Inference iterations must be >0"):
            link.command("infer 0 0")
        with pytest.raises(DeviceFault, match="Unknown command: frobnicate; does its image know this command"):
            link.command("frobnicate")


def test_argument_garbled_on_its_way_there_is_sent_again() -> None:
    with FakeDevice(NETWORK, [Mishap("deaf", "infer", position=6)]) as device, connected(device) as link:
        link.sync()
        assert link.outputs_of(INPUT) == rotated(INPUT)  # `infer  0` was refused: no number above 0
        assert device.commands.count("infer 1 0") == 2


def test_host_that_comes_back_mid_command_is_in_sync_again() -> None:
    with FakeDevice(NETWORK) as device:
        with connected(device) as first:
            first.sync()
            first._port.send("db 0102")  # goes away without the closing %
        with connected(device) as second:
            second.sync()
            assert second.build_id() == "0123456789abcdef"


def test_port_that_does_not_exist_is_absent_hardware() -> None:
    with pytest.raises(HardwareAbsent, match="cannot be opened.*is the board attached"):
        DeviceLink.open("/dev/no-such-port")


def test_vanishing_port_is_reported_not_waited_for() -> None:
    with FakeDevice(NETWORK) as device:
        link = connected(device)
        link.sync()
    with pytest.raises(LinkTimeout, match="the port vanished|cannot send"):
        link.build_id()
    link.close()


def test_oversize_or_split_commands_are_refused_before_they_are_sent() -> None:
    with FakeDevice(NETWORK) as device, connected(device) as link:
        for text in ("x" * 80, "name%build", "n\xe4me", "audio " + "x" * 244):
            with pytest.raises(ValueError, match="not a command"):
                link.command(text)
        link.sync()
        for text in ("x" * 79, "audio " + "x" * 243):
            with pytest.raises(DeviceFault, match="Unknown command"):
                link.command(text)


def test_port_that_vanishes_and_comes_back_elsewhere_is_found_again() -> None:
    network = FakeNetwork(infer=lambda data: rotated(data or bytes(40)))
    devices = [FakeDevice(network, [Mishap("vanish", "infer")]), FakeDevice(network)]
    with devices[0], devices[1]:
        places = iter([devices[1].url])
        link = DeviceLink.open(devices[0].url, limits=IMPATIENT, relocate=lambda: next(places))
        with link:
            link.sync()
            assert link.outputs_of(INPUT) == rotated(INPUT)
            assert devices[1].commands.count(f"db load {len(INPUT)}") == 1


def test_faster_rate_is_agreed_on_and_used() -> None:
    with FakeDevice(NETWORK, through="pty") as device, connected(device) as link:
        link.sync()
        assert link.change_baud(921600)
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert device.commands.count("baud ok") == 1
        assert link.retries == 0


@pytest.mark.parametrize(
    "mishap",
    [
        Mishap("silence", "baud 9"),
        Mishap("torn", "baud 9"),
        Mishap("not_ready", "baud 9"),
        Mishap("silence", "baud ok"),
        Mishap("deaf", "baud ok"),
    ],
    ids=lambda mishap: f"{mishap.kind} {mishap.command}",
)
def test_rate_that_is_not_confirmed_falls_back_on_both_sides(mishap: Mishap) -> None:
    with FakeDevice(NETWORK, [mishap], through="pty", baud_confirm_s=0.4) as device, connected(device) as link:
        link.sync()
        changed = link.change_baud(921600)
        assert not changed
        assert link.build_id() == NETWORK.build_id


def test_rate_whose_confirmation_was_answered_badly_is_found_in_use() -> None:
    with FakeDevice(NETWORK, [Mishap("flipped", "baud ok")], through="pty") as device, connected(device) as link:
        link.sync()
        assert link.change_baud(921600), "the device has changed: only its last word was garbled"
        assert link.build_id() == NETWORK.build_id


def test_refused_rate_changes_nothing() -> None:
    with FakeDevice(NETWORK, through="pty") as device, connected(device) as link:
        link.sync()
        assert not link.change_baud(12345)
        assert link.build_id() == NETWORK.build_id


def test_device_that_restarts_at_its_first_rate_is_followed_there() -> None:
    with FakeDevice(NETWORK, [Mishap("reset", "infer")], through="pty") as device, connected(device) as link:
        link.sync()
        assert link.change_baud(921600)
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert device.commands.count(f"db load {len(INPUT)}") == 2


def test_device_at_another_rate_is_found_by_the_first_sync() -> None:
    with FakeDevice(NETWORK, through="pty", first_baud=9600) as device:
        link = DeviceLink.open(device.url, limits=IMPATIENT, other_baud=9600)
        with link:
            link.sync()
            assert link.baud == 9600
            assert link.outputs_of(INPUT) == rotated(INPUT)
            assert link.change_baud(921600)
            link.reset()
            assert (link.build_id(), link.baud) == (NETWORK.build_id, 9600), "a restart is back at the first rate"


def test_energy_mode_has_no_times_and_two_pulses_an_inference() -> None:
    pulses: list[int] = []
    network = FakeNetwork(infer=rotated, energy_mode=True, pulse=lambda: pulses.append(1))
    with FakeDevice(network) as device, connected(device) as link:
        link.sync()
        assert not link.tells_time()
        pulses.clear()
        assert link.outputs_of(INPUT) == rotated(INPUT)
        assert len(pulses) == 2
