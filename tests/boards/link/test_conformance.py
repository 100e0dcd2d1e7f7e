"""MLPerf Tiny's protocol on the twins, byte for byte, and a stock-like runner in its three modes."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from boards import board_names, load_board
from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.timeline import Board as SuppliedBoard
from hil.instruments.simulated.timeline import Timeline
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from stages.graph.tflite.writer import write_tflite
from tests.boards.link.stock_runner import StockMonitor, StockRunner
from tests.boards.link.test_protocol import EXCHANGES
from tests.boards.stm32.emulated_board import EmulatedBoard
from tests.boards.stm32.register_model import HSE_HZ
from tests.boards.twin.qemu_twin import Twin, running_twin

BOARD = "nucleo_f767zi"
TRACED = ("mps2_fpgaio_write", "cmsdk_apb_uart_write")
WRITE = re.compile(r"(mps2_fpgaio|cmsdk_apb_uart)_write.*offset (?:0x)?([0-9a-f]+) data (?:0x)?([0-9a-f]+)")


@pytest.fixture(scope="module")
def twin(images: dict[str, Firmware]) -> Iterator[Twin]:
    with running_twin(images[BOARD].twin) as (running, boot):
        assert re.fullmatch(r"m-lap-us-\d+", boot[1])
        assert [boot[0], *boot[2:]] == ["m-timestamp-mode-performance", "m-init-done"]
        yield running


@pytest.fixture(scope="module")
def for_energy(network: Graph, tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    """For energy, and taking pictures as the stock runner sends them."""
    folder = tmp_path_factory.mktemp("energy")
    (folder / "model.tflite").write_bytes(write_tflite(network, "test"))
    config = FirmwareConfig(mode="energy", input="uint8", model_name="ic01")
    model = folder / "model.tflite"
    return firmware.function(model, None, config=config, board=BOARD, out_dir=folder)


def test_every_command_and_every_error_is_answered_byte_for_byte(twin: Twin, images: dict[str, Firmware]) -> None:
    build_id = Path(images[BOARD].generated / "build_id.h").read_text().split('"')[1].encode()
    for command, reply in EXCHANGES:
        twin.ask("reset")
        twin.send((command.encode() if isinstance(command, str) else command) + b"%")
        wanted = reply.replace(b"[host]", b"[virtual %s]" % BOARD.encode()).replace(b"0123456789abcdef", build_id)
        assert twin.bytes_until_ready() == wanted, command


def test_a_load_is_silent_until_its_last_byte_and_printed_eight_bytes_a_line(twin: Twin) -> None:
    assert twin.ask("db load 10") == ["m-[Expecting 10 bytes]"]
    assert twin.ask("db 0001020304050607") == []
    assert twin.ask("db 08fF") == ["m-load-done"]
    assert twin.ask("db print") == ["m-buffer-00-01-02-03-04-05-06-07", "m-buffer-08-ff"]
    assert twin.ask("db 01") == ["e-[No load under way: send load first]"]


def test_infer_has_the_defaults_and_the_order_of_the_protocol(twin: Twin) -> None:
    twin.ask("reset")
    lines = twin.ask("infer")
    assert [re.sub(r"m-lap-us-\d+", "m-lap-us", line) for line in lines[:-1]] == [
        *("m-warmup-start-10", "m-warmup-done", "m-infer-start-1", "m-lap-us", "m-lap-us", "m-infer-done"),
    ]
    assert re.fullmatch(r"m-results-\[\d\.\d{3}(,\d\.\d{3})+\]", lines[-1])
    assert twin.ask("results") == [lines[-1]]
    assert re.fullmatch(r"m-lap-us-\d+", *twin.ask("timestamp"))


def test_the_stock_runner_measures_performance(twin: Twin, network: Graph) -> None:
    runner = StockRunner(twin.ask)
    assert runner.identify() == (f"virtual {BOARD}", "kws01")
    found = runner.performance([one.tobytes() for one in drawn_inputs(count=5)], inferences=200, warmups=10)
    assert len(found.laps_us) == 5
    per_inference = load_board(BOARD).clock_hz / found.inferences_per_s
    assert per_inference == pytest.approx(sum(twin.layer_instructions()), abs=700)


@pytest.mark.parametrize("board", board_names())
def test_the_stock_runner_gets_the_scores_that_make_up_its_accuracy(
    board: str, images: dict[str, Firmware], network: Graph
) -> None:
    with running_twin(images[board].twin) as (twin, _):
        runner = StockRunner(twin.ask)
        for one in drawn_inputs(count=10):
            assert runner.scores(one.tobytes()) == expected_scores(network, one)


def drawn_inputs(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [rng.integers(-128, 128, (1, 9, 7, 3), dtype=np.int8) for _ in range(count)]


def expected_scores(network: Graph, one: np.ndarray) -> list[float]:
    """As printed with three decimals, divided by their sum."""
    levels = run_graph(network, one)[network.outputs[0]].reshape(-1).astype(int) + 128
    printed = [float(f"{level / 256:.3f}") for level in levels]
    return [value / sum(printed) for value in printed]


@contextmanager
def pulses_to(monitor: SimulatedLpm01a, log: Path) -> Iterator[None]:
    """The twin's timestamp pin wired to the monitor's D7."""
    ended = threading.Event()

    def follow() -> None:
        low = False
        with log.open() as written:
            while not ended.wait(0.001):
                while (line := written.readline()).endswith("\n"):
                    for _, offset, data in WRITE.findall(line):
                        high = bool(int(data, 16) & 1)
                        if int(offset, 16) == 0 and low and high:
                            monitor.pulse()
                        low = not high if int(offset, 16) == 0 else low

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def pulses_and_text(log: Path) -> str:
    """What left the machine, in order: characters, and ~ for a pulse of the timestamp pin."""
    seen = ""
    low = False
    for device, offset, data in WRITE.findall(log.read_text()):
        if device == "cmsdk_apb_uart" and int(offset, 16) == 0:
            seen += chr(int(data, 16))
        elif device == "mps2_fpgaio" and int(offset, 16) == 0:
            if low and int(data, 16) & 1:
                seen += "~"
            low = not int(data, 16) & 1
    return seen


def test_a_board_built_for_energy_speaks_slowly_and_pulses_for_ten_microseconds(
    for_energy: Firmware,
) -> None:
    described = load_board(BOARD)
    board = EmulatedBoard(for_energy.image, described)
    assert board.sent == b"m-timestamp-mode-energy\r\nm-init-done\r\nm-ready\r\n"
    console_hz = board.family.clocks(board.written, HSE_HZ[BOARD], described.console.uart).console_hz
    assert console_hz / board.written["USART3_BRR"] == pytest.approx(described.baud(measures_energy=True), rel=0.01)
    assert [edge for edge, _ in board.edges] == ["rise"], "high from the start"
    assert board.ask(b"timestamp%") == b"m-ready\r\n"
    assert b"m-infer-start-1\r\nm-infer-done\r\n" in board.ask(b"infer 1 0%")
    assert [edge for edge, _ in board.edges[1:]] == ["fall", "rise"] * 3
    cycles = [cycle for _, cycle in board.edges[1:]]
    for fall, rise in zip(cycles[::2], cycles[1::2], strict=True):
        assert 10 <= (rise - fall) * 1e6 / described.clock_hz < 15
    assert board.stray == board.forbidden == []


def test_energy_mode_marks_a_block_by_two_pulses(for_energy: Firmware, network: Graph, tmp_path: Path) -> None:
    log = tmp_path / "trace.log"
    tracing = ["-D", str(log), "-d", ",".join(f"trace:{event}" for event in TRACED)]
    inputs = drawn_inputs(count=3)
    pictures = [(one.astype(int) + 128).astype(np.uint8).tobytes() for one in inputs]
    with running_twin(for_energy.twin, arguments=tracing) as (twin, boot):
        assert boot == ["m-timestamp-mode-energy", "m-init-done"]
        runner = StockRunner(twin.ask)
        assert runner.identify() == (f"virtual {BOARD}", "ic01")
        assert twin.ask("timestamp") == []
        for picture, one in zip(pictures, inputs, strict=True):
            assert runner.scores(picture) == expected_scores(network, one)
        assert runner.infer(7, 2)[0] == ()
        assert twin.ask("baud") == ["m-baud-[9600]"]
        assert twin.ask("db print")[0] == "m-buffer-" + pictures[-1][:8].hex("-"), "as it was sent"
        assert twin.ask("crc") == [f"m-crc-[{zlib.crc32(pictures[-1]):08x}]"]
        assert runner.infer(1, 0)[1] == expected_scores(network, inputs[-1]), "and still the same picture"
        assert twin.ask("db place 190") == ["e-[Load of 190 bytes refused: the input has 189]"]
        assert twin.ask("infer 1 0") == ["e-[Input incomplete: load it again]"]
    text = pulses_and_text(log)
    assert text.count("~") == 1 + 2 * len(inputs) + 4
    assert text.count("m-ready\r\n~m-ready\r\n") == 1, "timestamp% is a pulse and nothing else"
    assert text.count("m-infer-start-7\r\n~~m-infer-done\r\n") == 1, "nothing is sent between the pulses of a block"


def test_the_stock_runner_measures_energy(for_energy: Firmware, network: Graph, tmp_path: Path) -> None:
    log = tmp_path / "trace.log"
    log.touch()
    files = [(one.astype(int) + 128).astype(np.uint8).tobytes() for one in drawn_inputs(count=5)]
    board = SuppliedBoard(Timeline.steps([(1.0, 0.04)]), voltage_v=1.8)
    with (
        running_twin(for_energy.twin, arguments=["-D", str(log), "-d", f"trace:{TRACED[0]}"]) as (twin, _),
        SimulatedLpm01a(board) as shield,
        pulses_to(shield, log),
    ):
        monitor = StockMonitor(shield.port)
        runner = StockRunner(twin.ask, monitor)
        assert runner.identify() == (f"virtual {BOARD}", "ic01")
        blocks = runner.energy(files, inferences=3000, warmups=10)
        assert runner.scores(files[-1]) == expected_scores(network, drawn_inputs(count=5)[-1])
        monitor.close()
    assert [block.events for block in blocks] == [(2 * block + 1, 2 * block + 2) for block in range(5)]
    for block in blocks:
        assert block.duration_s > 0
        assert block.energy_j == pytest.approx(0.04 * block.duration_s, rel=1e-3)
    assert shield.commands[-4:] == ["pwr off", "stop", "pwr off", "hrc"]
