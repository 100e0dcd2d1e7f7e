"""The measure step on a real twin with a real, small network."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from boards import load_board
from hil.fakes.fake_device import FakeDevice, FakeNetwork
from hil.link.device_link import DeviceLink
from hil.virtual.profiler import CacheShape
from hil.virtual.program import Program, Symbol
from pipeline.errors import HardwareAbsent, HardwareError, StageError
from pipeline.stage import Target, read_json, write_json
from stages.graph.memory.resources import op_macs, resources
from stages.measure.golden import Golden, check_output, read_golden
from stages.measure.modelled import memory_model, profile_network
from stages.measure.session import OpenLink, check_clock, measure_device
from stages.measure.stage import MeasureConfig, Measured, run

BOARD = "nucleo_f767zi"
RUNS = 3
MARK = 12  # instructions of the mark between two ops, which the two ways of counting cut differently
LAYER_COLUMNS = (
    "index,op,name,kernel,macs,instructions,cycles_modelled,cycles_zero_wait,cycles,arena_live_bytes,"
    "latency_ms_modelled,latency_ms,weight_bytes,area,latency_ms_modelled_low,latency_ms_modelled_high"  # a contract
)


@dataclass
class Counter:
    """A progress that counts."""

    total: int = 0
    done: int = 0
    units: list[str] = field(default_factory=list)

    def start(self, total: int, unit: str) -> None:
        self.total += total
        self.units.append(unit)

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count


def measure(
    flashed, out_dir: Path, golden: Path | None = None, source: str = "virtual", flash: Path | None = None
) -> Measured:
    out_dir.mkdir()
    return run.function(
        flash or flashed.flash,
        flashed.firmware.twin,
        flashed.firmware.footprint,
        flashed.model,
        golden or flashed.golden,
        flashed.features,
        flashed.dataset,
        config=MeasureConfig(runs=RUNS, warmup=1),
        target=Target(BOARD, source),
        experiment="trial",
        out_dir=out_dir,
        progress=Counter(),
    )


@pytest.fixture(scope="session")
def measured(flashed, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(flashed, tmp_path_factory.mktemp("measured") / "out")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_device_outputs_are_those_of_tensorflow_lite_micro(flashed, measured: Measured) -> None:
    stored, golden = np.load(measured.outputs), np.load(flashed.golden)
    assert np.array_equal(stored["inputs"], golden["inputs"])
    assert np.array_equal(stored["outputs"], golden["outputs"])
    assert len(np.unique(stored["outputs"])) > 4, "a network that says the same to everything proves nothing"


def test_one_sample_per_run_and_each_says_where_it_comes_from(measured: Measured) -> None:
    rows = rows_of(measured.samples)
    assert [row["run"] for row in rows] == ["0", "1", "2"]
    for row in rows:
        assert (row["experiment"], row["board"], row["source"]) == ("trial", BOARD, "virtual")
        assert (row["clock_hz"], row["n"], row["cycles"], row["latency_ms"]) == ("216000000", "3", "", "")
    assert len({row["instructions"] for row in rows}) == 1, "the twin counts exactly"


def test_layers_have_the_contract_columns_and_add_up(flashed, measured: Measured) -> None:
    assert measured.device_layers.read_text().splitlines()[0] == LAYER_COLUMNS
    rows, device = rows_of(measured.device_layers), read_json(measured.device)
    assert [row["op"] for row in rows] == [op.kind for op in flashed.graph.ops]
    for column in ("instructions", "cycles_modelled", "cycles_zero_wait"):
        assert sum(int(row[column]) for row in rows) == device[column]
    assert sum(int(row["macs"]) for row in rows) == resources(flashed.graph).macs
    assert sum(int(row["weight_bytes"]) for row in rows) == resources(flashed.graph).size_bytes
    milliseconds = sum(float(row["latency_ms_modelled"]) for row in rows)
    assert milliseconds == pytest.approx(device["latency_ms_modelled"])
    assert all(row["cycles"] == row["latency_ms"] == "" for row in rows)
    assert max(int(row["arena_live_bytes"]) for row in rows) <= device["arena_bytes"]


def test_device_record_holds_time_memory_and_identity(flashed, measured: Measured) -> None:
    device = read_json(measured.device)
    assert device["build_id"] == read_json(flashed.firmware.footprint)["build_id"]
    assert device["latency_ms_modelled"] == pytest.approx(device["cycles_modelled"] / 216e3)
    assert 0 < device["stack_high_water_bytes"] < device["stack_bytes"]
    assert 0 < device["cycles_zero_wait"] <= device["cycles_modelled"]
    assert 0.5 < device["instructions"] / device["cycles_zero_wait"] < 2, "two instructions a cycle at best"
    assert device["boot_lines"] == ["m-timestamp-mode-performance", "m-init-done"]
    assert device["cycles"] is None


def test_accuracy_is_not_measured_unless_asked_for(measured: Measured) -> None:
    found = read_json(measured.device_accuracy)
    assert (found["n"], found["accuracy_device"], found["differences"]) == (0, None, [])


def test_a_device_without_ears_reports_neither_front_end_nor_stream(measured: Measured) -> None:
    device = read_json(measured.device)
    assert (device["front_end"], device["stream"]) == (None, None)


def test_conv_is_modelled_by_its_macs(measured: Measured) -> None:
    conv = rows_of(measured.device_layers)[0]
    assert int(conv["macs"]) == 6 * 6 * 5 * 9
    assert int(conv["instructions"]) > int(conv["macs"]) / 2


def test_plugin_and_twin_count_the_same_instructions_per_op(flashed, measured: Measured) -> None:
    network_input = read_golden(flashed.golden).inputs[0].tobytes()
    profile = profile_network(flashed.firmware.twin, network_input, load_board(BOARD))
    assert profile is not None
    for op, row in zip(profile, rows_of(measured.device_layers), strict=True):
        assert abs(op.instructions - int(row["instructions"])) <= MARK


def test_same_inputs_give_the_same_bytes(flashed, measured: Measured, tmp_path: Path) -> None:
    again = measure(flashed, tmp_path / "again")
    for name in ("samples", "device_layers", "outputs", "device", "device_accuracy"):
        assert getattr(again, name).read_bytes() == getattr(measured, name).read_bytes()


def test_wrong_output_names_input_and_byte(flashed, tmp_path: Path) -> None:
    golden = read_golden(flashed.golden)
    outputs = golden.outputs.copy()
    outputs[3, 2] ^= 1
    wrong = tmp_path / "golden.npz"
    np.savez(wrong, inputs=golden.inputs, outputs=outputs)
    with pytest.raises(StageError, match=r"nucleo_f767zi twin: output of golden input 3 differs first at byte 2"):
        measure(flashed, tmp_path / "out", wrong)


def test_absent_board_is_refused_before_anything_is_measured(flashed, tmp_path: Path) -> None:
    flash = write_json(tmp_path / "flash.json", {**read_json(flashed.flash), "probe_serial": "none"})
    with pytest.raises(HardwareAbsent, match=f"{BOARD} with probe none: not attached"):
        measure(flashed, tmp_path / "out", source="hardware", flash=flash)


def test_without_a_compiler_cycles_are_empty_and_instructions_exact(
    flashed, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "qemu-system-arm").symlink_to(shutil.which("qemu-system-arm"))
    monkeypatch.setenv("PATH", str(tools))
    bare = measure(flashed, tmp_path / "out")
    device = read_json(bare.device)
    assert (device["cycles_modelled"], device["cycles_zero_wait"], device["latency_ms_modelled"]) == (None, None, None)
    assert device["instructions"] == read_json(measured.device)["instructions"]
    assert {row["cycles_modelled"] for row in rows_of(bare.device_layers)} == {""}


@pytest.fixture
def fake_board():
    network = FakeNetwork(infer=lambda data: data[:3], layer_ticks=(216_000, 432_000))
    with FakeDevice(network, through="pty") as device, DeviceLink.open(device.url) as link:
        link.sync()
        yield OpenLink(link, "hardware", "fake")


FAKE_GOLDEN = Golden(np.arange(12, dtype=np.int8).reshape(2, 6), np.array([[0, 1, 2], [6, 7, 8]], np.int8))


def test_hardware_samples_are_latencies_by_the_devices_clock(fake_board: OpenLink) -> None:
    progress = Counter()
    seen = measure_device(fake_board, FAKE_GOLDEN, 2, "0123456789abcdef", 4, 1, progress)
    assert [(s.instructions, s.cycles, s.latency_ms) for s in seen.samples] == [(None, 648_000, 3.0)] * 4
    assert seen.op_ticks == (216_000, 432_000)
    assert not seen.counts_instructions
    assert (progress.total, progress.done) == (6, 6)


def test_cycles_are_those_of_the_counter_and_a_burst_stands_beside_single_inferences() -> None:
    network = FakeNetwork(infer=lambda data: data[:3], layer_ticks=(216_001, 432_000))  # no whole microseconds
    with FakeDevice(network, through="pty") as device, DeviceLink.open(device.url) as link:
        link.sync()
        board = OpenLink(link, "hardware", "fake")
        seen = measure_device(board, FAKE_GOLDEN, 2, "0123456789abcdef", 40, 1, Counter())
    assert {sample.cycles for sample in seen.samples} == {648_001}
    assert seen.burst is not None and (len(seen.burst.laps), seen.burst.ticks) == (32, 32 * 648_001)
    assert device.commands.count("infer 1 0") >= 40 and device.commands.count("infer 32 0") == 1


def test_a_board_on_another_clock_is_not_measured(fake_board: OpenLink) -> None:
    check_clock(fake_board, load_board("nucleo_f767zi"))
    fake_board.link.boot_lines = ("m-timestamp-mode-performance", "m-[trouble: HSE did not start]", "m-init-done")
    found = r"fake: runs at 216 MHz, needed 480 MHz \(trouble: HSE did not start\); find out with: pipeline bringup"
    with pytest.raises(HardwareError, match=found):
        check_clock(fake_board, load_board("nucleo_h743zi2"))


@pytest.mark.parametrize(("warmup", "infers"), [(0, []), (1, ["infer 1 1"]), (3, ["infer 1 3"])])
def test_in_energy_mode_cycles_come_from_the_marks_between_the_ops(warmup: int, infers: list[str]) -> None:
    network = FakeNetwork(infer=lambda data: data[:3], layer_ticks=(216_000, 432_000), energy_mode=True)
    with FakeDevice(network, through="pty") as device, DeviceLink.open(device.url) as link:
        link.sync()
        board = OpenLink(link, "hardware", "fake")
        seen = measure_device(board, FAKE_GOLDEN, 2, "0123456789abcdef", 2, warmup, Counter())
    assert [(s.instructions, s.cycles, s.latency_ms) for s in seen.samples] == [(None, 648_000, 3.0)] * 2
    timed = device.commands[: device.commands.index("layers")]
    assert [command for command in timed if command.startswith("infer")] == infers


def test_board_that_runs_another_image_is_refused(fake_board: OpenLink) -> None:
    with pytest.raises(StageError, match="fake: runs build 0123456789abcdef, needed ffff; force the flash step"):
        measure_device(fake_board, FAKE_GOLDEN, 2, "ffff", 1, 0, Counter())


def test_board_with_another_number_of_ops_is_refused(fake_board: OpenLink) -> None:
    with pytest.raises(StageError, match="reports 2 ops, the model has 3"):
        measure_device(fake_board, FAKE_GOLDEN, 3, "0123456789abcdef", 1, 0, Counter())


def test_output_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(StageError, match="output of golden input 1 has 2 B, needed 3 B"):
        check_output(1, bytes([6, 7]), FAKE_GOLDEN.outputs[1], "fake")


def test_unreadable_golden_values_name_the_step_to_run(tmp_path: Path) -> None:
    (tmp_path / "golden.npz").write_bytes(b"not a zip")
    with pytest.raises(StageError, match="golden.npz: no readable golden values.*run the export step again"):
        read_golden(tmp_path / "golden.npz")


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 0), (2, 1)])
def test_golden_inputs_without_outputs_are_refused(inputs: int, outputs: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", inputs=np.zeros((inputs, 2)), outputs=np.zeros((outputs, 3)))
    with pytest.raises(StageError, match=f"found {inputs} inputs and {outputs} outputs, needed as many of each"):
        read_golden(tmp_path / "golden.npz")


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        *(("runs", 1, None), ("warmup", 0, None), ("accuracy_inputs", 0, None)),
        *(("stream_words", 0, 1000), ("baud", 9600, None)),
    ],
)
def test_settings_beyond_their_limits_are_refused(field: str, least: int, most: int | None) -> None:
    assert getattr(MeasureConfig(**{field: least}), field) == least
    for value in [least - 1] + ([] if most is None else [most + 1]):
        with pytest.raises(ValidationError, match=field):
            MeasureConfig(**{field: value})
    assert most is None or getattr(MeasureConfig(**{field: most}), field) == most


def test_defaults_are_those_of_the_paper_and_what_touches_hardware_says_so() -> None:
    config = MeasureConfig()
    assert (config.runs, config.warmup, config.accuracy_inputs, config.stream_words) == (30, 3, 0, 20)
    assert run.touches_hardware


def test_the_boards_caches_are_those_of_the_model() -> None:
    model = memory_model(load_board(BOARD), Program((), {}, {}))
    assert (model.instruction_cache, model.data_cache) == (CacheShape(16384, 2, 32), CacheShape(16384, 4, 32))
    assert (model.flash_fill_cycles, model.ram_load_fill_cycles) == (16, 13)
    assert (model.ram_store_fill_cycles, model.write_back_cycles) == (3, 1)
    assert [(part.address, part.size_bytes) for part in model.ranges] == [(0, 4 << 20), (0x20000000, 4 << 20)]


def test_bulk_section_stands_for_cached_ram_and_the_rest_for_dtcm() -> None:
    bulk = Symbol(".bulk", 0x20004000, 512)
    model = memory_model(load_board(BOARD), Program((), {}, {".bulk": bulk}))

    def kind(address: int) -> str:
        return next(part.kind for part in model.ranges if part.address <= address < part.address + part.size_bytes)

    assert [kind(address) for address in (0x100, 0x20000000, 0x20004000, 0x20004200)] == [
        "flash",
        "uncached",
        "ram",
        "uncached",
    ]


def test_macs_of_the_ops_add_up_to_those_of_the_network(flashed) -> None:
    assert [op_macs(flashed.graph, op) for op in flashed.graph.ops] == [1620, 0, 720, 0]


@pytest.mark.parametrize("step", ["flash", "measure", "report"])
def test_importing_the_step_imports_nothing_heavy(step: str) -> None:
    program = (
        f"import sys, stages.{step}.stage\n"
        "print([name for name in ('numpy', 'torch', 'pandas', 'capstone', 'serial') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
