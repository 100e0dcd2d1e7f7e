"""Energy in the measure step: simulated beside a twin, through the instruments of bench.yaml beside a board."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from boards import load_board
from hil.bench.locks import instrument_lock
from hil.fakes.fake_device import FakeDevice, FakeNetwork
from hil.instruments.energy_run import ATTEMPTS
from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiServer
from hil.instruments.simulated.timeline import Board, Fault, Timeline
from hil.instruments.simulated.truevolt import SimulatedTruevolt
from hil.link.device_link import DeviceLink
from hil.link.replies import MemoryUse
from pipeline.errors import HardwareError, InstrumentError, StageError
from pipeline.stage import read_json
from stages.measure.energy import EnergyResult, energy_record, measure_energy, window_energies_mj
from stages.measure.seen import Sample, Seen
from stages.measure.session import OpenLink
from tests.stages.measure.test_measure import BOARD, RUNS, measured, rows_of  # noqa: F401

SERIAL = "066AFF02"
TICKS = (1_200_000, 960_000)  # of a fake of 216 MHz: 10 ms
LATENCY_S = sum(TICKS) / 216e6
IDLE_W = 0.02
SEEN = Seen((Sample(None, 1, 1.0),) * 4, TICKS, np.zeros(1), MemoryUse(0, 0, 0), 216_000_000, "0" * 16, (), None)


def test_beside_a_twin_energy_is_simulated_and_says_so(measured) -> None:  # noqa: F811
    rows, device, board = rows_of(measured.samples), read_json(measured.device), load_board(BOARD)
    energy = device["energy"]
    assert (energy["source"], energy["n"]) == ("simulated", RUNS)
    assert [row["energy_mj"] for row in rows] == [""] * RUNS, "nothing was measured"
    assert all(float(row["energy_mj_simulated"]) == pytest.approx(energy["energy_mj"], rel=0.01) for row in rows)
    # 1 W for 1 ms is 1 mJ
    assert energy["energy_mj"] == pytest.approx(board.power_active_w * device["latency_ms_modelled"], rel=1e-3)
    assert energy["idle_mw"] == pytest.approx(board.power_active_w * 500, rel=1e-3)
    assert abs(energy["energy_mj"] - board.power_active_w * device["latency_ms_modelled"]) <= energy["uncertainty_mj"]
    with np.load(measured.power) as stored:
        assert stored["source"] == "simulated"
        assert len(stored["power_w"]) == len(stored["edges_s"]) == RUNS


@dataclass
class Wired(Board):
    """What a simulated instrument sees of a fake board in energy mode: two pulses of its pin are a window."""

    power_w: float = 0.9
    pulses: int = 0
    follows: bool = True

    def next_fault(self) -> Fault | None:
        self.pulses = 0  # a new capture begins
        return super().next_fault()

    def pulse(self, command: str) -> None:
        if command.startswith("infer") and self.follows:
            self.pulses += 1
            window = (int(command.split(" ")[1]) * LATENCY_S, self.power_w)
            self.timeline = _timeline(window, (self.pulses + 1) // 2)


def _timeline(window: tuple[float, float], windows: int) -> Timeline:
    return Timeline.of_runs([window], runs=windows, idle_s=0.1, idle_w=IDLE_W)


@contextmanager
def board_with(kind: str, folder: Path, faults: tuple[Fault, ...] = (), energy_mode: bool = True) -> Iterator[OpenLink]:
    """An attached board, and bench.yaml that ties the instrument of this kind to it."""
    supply = Wired(_timeline((0.01, 0.9), 1), noise_a=1e-5, pulse_s=300e-6, faults=list(faults))
    if kind == "lpm01a":  # it streams from its start on, so it must know beforehand: windows of 1,000 samples of 0.2 ms
        supply.power_w, supply.follows, supply.timeline = 0.1, False, _timeline((0.2, 0.1), 4)
    network = FakeNetwork(
        infer=bytes, layer_ticks=TICKS, energy_mode=energy_mode, pulse=lambda: supply.pulse(device.commands[-1])
    )
    with FakeDevice(network) as device, _instrument(kind, supply) as entry:
        (folder / "bench.yaml").write_text(
            f"boards:\n  {SERIAL}: {{instrument: {kind}, point: mcu, voltage: 3.3V, {entry}}}\n"
        )
        with DeviceLink.open(device.url) as link:
            link.sync()
            link.tells_time()
            yield OpenLink(link, "hardware", "nucleo_f767zi", SERIAL)


@contextmanager
def _instrument(kind: str, supply: Board) -> Iterator[str]:
    if kind == "lpm01a":
        with SimulatedLpm01a(supply) as meter:
            yield f"address: {meter.port}"
    elif kind == "truevolt":
        with ScpiServer(SimulatedTruevolt(supply, 0.1)) as server:
            yield f"address: '{server.resource}', shunt: 100mOhm"
    else:
        with ScpiServer(SimulatedN6705(supply)) as server:
            yield f"address: '{server.resource}', edge_channel: 2, max_current: 3A"


def measure(device: OpenLink, folder: Path, wanted: str = "auto") -> EnergyResult:
    return measure_energy(device, load_board(BOARD), SEEN, None, folder / "bench.yaml", wanted)


@pytest.mark.parametrize(("kind", "power_w", "within"), [("n6705", 0.9, 1e-3), ("lpm01a", 0.1, 1e-3)])
def test_the_instrument_of_bench_yaml_measures_the_board(kind: str, power_w: float, within: float, tmp_path) -> None:
    with board_with(kind, tmp_path) as device:
        result = measure(device, tmp_path)
    record = energy_record(result)
    assert (result.source, record["n"], record["captures_repeated"]) == ("measured", 4, 0)
    assert record["energy_mj"] == pytest.approx(power_w * LATENCY_S * 1e3, rel=within)
    assert abs(record["energy_mj"] - power_w * LATENCY_S * 1e3) <= record["uncertainty_mj"]
    assert record["idle_mw"] == pytest.approx(IDLE_W * 1e3, rel=1e-2)
    assert window_energies_mj(result, "simulated", 4) == [None] * 4
    assert result.seen is not None
    report, parts = result.seen.report, result.seen.report.uncertainty
    assert report.idle is not None
    assert window_energies_mj(result, "measured", 4) == [energy_j * 1e3 for energy_j in report.energies_j]
    spread = {"spread": parts.spread_j, "noise": parts.noise_j, "sampling": parts.sampling_j}
    spread |= {"time_base": parts.time_base_j, "range": parts.range_j}
    for name, value_j in spread.items():
        assert record[f"uncertainty_{name}_mj"] == value_j * 1e3
    assert record["above_idle_mj"] == pytest.approx(record["energy_mj"] - record["idle_mw"] * LATENCY_S, rel=1e-3)
    assert record["window_ms"] == pytest.approx(LATENCY_S * 1e3, rel=1e-3)
    assert record["idle_mw_2sigma"] == report.idle.two_sigma_w * 1e3
    assert record["sample_interval_us"] == result.seen.windows[0][0].dt_s * 1e6
    assert (record["reason"], record["inferences_per_window"]) == ("", result.seen.inferences)


def test_an_instrument_that_sees_one_edge_takes_the_duration_from_the_device(tmp_path: Path) -> None:
    with board_with("truevolt", tmp_path) as device:
        record = energy_record(measure(device, tmp_path))
    assert record["energy_mj"] == pytest.approx(0.9 * LATENCY_S * 1e3, rel=1e-3)


def test_without_an_instrument_there_is_no_energy_and_a_reason(tmp_path: Path) -> None:
    with board_with("n6705", tmp_path) as device:
        bench = tmp_path / "bench.yaml"
        bench.write_text(bench.read_text().replace(SERIAL, "066AFF03"))
        assert measure(device, tmp_path).reason == f"bench.yaml ties no instrument to probe {SERIAL}"
        bench.unlink()
        result = measure(device, tmp_path)
        assert (result.source, result.seen) == ("", None)
        assert energy_record(result) == {
            "source": None,
            "reason": f"bench.yaml ties no instrument to probe {SERIAL}",
        }
        assert window_energies_mj(result, "measured", 3) == [None] * 3
        with pytest.raises(StageError, match="no energy, though measure.energy is required: bench.yaml ties no"):
            measure(device, tmp_path, "required")


def test_energy_that_is_not_wanted_is_not_looked_for(tmp_path: Path) -> None:
    with board_with("n6705", tmp_path) as device:
        assert measure(device, tmp_path, "off") == EnergyResult("", None, "measure.energy is off")


def test_an_image_for_performance_is_told_from_one_for_energy(tmp_path: Path) -> None:
    with board_with("n6705", tmp_path, energy_mode=False) as device:
        assert "does not pulse the timestamp pin" in measure(device, tmp_path).reason


def test_a_capture_that_overran_is_repeated_and_counted(tmp_path: Path) -> None:
    with board_with("n6705", tmp_path, faults=("overrun", "lost")) as device:
        record = energy_record(measure(device, tmp_path))
    assert (record["captures_repeated"], record["n"]) == (2, 4)
    assert record["energy_mj"] == pytest.approx(9.0, rel=1e-3)


def test_an_instrument_that_always_overruns_is_an_error(tmp_path: Path) -> None:
    with (
        board_with("n6705", tmp_path, faults=("overrun",) * ATTEMPTS) as device,
        pytest.raises(InstrumentError, match="overrun"),
    ):
        measure(device, tmp_path)


def test_an_instrument_in_use_by_another_job_is_named_with_its_holder(tmp_path: Path) -> None:
    with board_with("n6705", tmp_path) as device:
        address = (tmp_path / "bench.yaml").read_text().split("'")[1]
        with (
            instrument_lock(address, purpose="another bench"),
            pytest.raises(HardwareError, match="in use now, held by .* for another bench"),
        ):
            measure(device, tmp_path)
