"""bench.yaml: what it says, what it refuses, and the instruments it opens."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hil.bench.bench_file import load_bench, open_instrument
from hil.instruments.instrument import Capture
from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiServer
from hil.instruments.simulated.timeline import Board, Timeline
from hil.instruments.simulated.truevolt import SimulatedTruevolt
from pipeline.errors import ConfigError, HardwareAbsent

ROOT = Path(__file__).resolve().parents[3]

GOOD = """
boards:
  066DFF505053846867:
    instrument: n6705
    point: mcu
    address: TCPIP::10.0.0.5::5025::SOCKET
    channel: 3
    edge_channel: 4
    voltage: 3.3V
    max_current: 300mA
  0668:
    instrument: truevolt
    point: mcu
    address: USB0::0x2A8D::0x0101::MY1::INSTR
    voltage: 5V
    shunt: 100mOhm
    shunt_tolerance: 0.5%
    visa_library: "@ivi"
"""


def bench_of(tmp_path, text):
    path = tmp_path / "bench.yaml"
    path.write_text(text)
    return load_bench(path)


def test_boards_are_found_by_the_serial_number_of_their_probe(tmp_path):
    bench = bench_of(tmp_path, GOOD)
    first, second = bench.wiring("066dff505053846867"), bench.wiring("0668")
    assert (first.instrument, first.channel, first.edge_channel) == ("n6705", 3, 4)
    assert (first.voltage, first.max_current, first.visa_library) == (3.3, pytest.approx(0.3), "@py")
    assert (second.shunt, second.shunt_tolerance, second.visa_library) == (
        pytest.approx(0.1),
        pytest.approx(0.005),
        "@ivi",
    )
    assert (second.channel, second.edge_channel, second.pin_voltage, second.max_current) == (1, None, 3.3, 0.5)
    assert bench.wiring("0669") is None


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "channel: 3",
            "chanel: 3",
            r"bench\.yaml: boards\.066DFF505053846867\.chanel: unknown key; did you mean 'channel'\?",
        ),
        ("boards:", "bords:", r"bench\.yaml: bords: unknown key; did you mean 'boards'\?"),
        ("n6705", "n6750", r"066DFF505053846867\.instrument: found 'n6750'; did you mean 'n6705'\?"),
        ("3.3V", "3.3", r"voltage: found 3\.3, needed a quantity with its unit, such as 3\.3V"),
        ("300mA", "300mV", r"max_current: found '300mV', needed a quantity with its unit, such as 500mA"),
        ("300mA", "0A", r"max_current: found '0A', needed"),
        ("shunt: 100mOhm", "", r"0668: found no shunt, needed one for a truevolt"),
        ("edge_channel: 4", "edge_channel: 3", "found edge_channel 3 like channel, needed another one"),
        ("max_current: 300mA", "shunt: 1Ohm", "found shunt, of which n6705 makes no use; it has instrument, address"),
        ("    address: TCPIP::10.0.0.5::5025::SOCKET\n", "", r"066DFF505053846867\.address: missing; add it"),
        ("channel: 3", "channel: three", "channel: found 'three', Input should be a valid integer"),
        ("boards:", "boards: [", r"bench\.yaml:\d+: not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path, old, new, sentence):
    with pytest.raises(ConfigError, match=sentence):
        bench_of(tmp_path, GOOD.replace(old, new, 1))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"bench\.yaml: not readable \(No such file"):
        load_bench(tmp_path / "bench.yaml")


def test_the_wired_instrument_is_opened(tmp_path):
    board = Board(Timeline.of_runs([(0.05, 0.05)], runs=1, idle_s=0.05, idle_w=0.02), voltage_v=1.8)
    with (
        ScpiServer(SimulatedN6705(board)) as analyser,
        ScpiServer(SimulatedTruevolt(board, 1.0)) as multimeter,
        SimulatedLpm01a(board) as shield,
    ):
        text = f"""
boards:
  A1: {{instrument: n6705, address: "{analyser.resource}", edge_channel: 2, point: board, voltage: 1.8V,
    max_current: 50mA}}
  A2: {{instrument: truevolt, address: "{multimeter.resource}", point: mcu, voltage: 1.8V, shunt: 1Ohm,
    max_current: 50mA}}
  A3: {{instrument: lpm01a, address: "{shield.port}", point: core, voltage: 1.8V}}
"""
        bench = bench_of(tmp_path, text)
        kinds = {}
        for serial in ("A1", "A2", "A3"):
            with open_instrument(bench, serial) as meter:
                kinds[serial] = meter.description.kind
                meter.arm(Capture(0.15, 1e-3))
                meter.trigger()
                trace = meter.read()
                assert float(trace.power_w.mean()) == pytest.approx((0.05 * 0.05 + 0.1 * 0.02) / 0.15, rel=0.02)
    assert kinds == {"A1": "n6705", "A2": "truevolt", "A3": "lpm01a"}


@pytest.mark.parametrize(
    ("kind", "module"), [("joulescope", "joulescope"), ("ppk2", "ppk2_api"), ("otii", "otii_tcp_client")]
)
def test_an_instrument_whose_package_is_missing_says_so(tmp_path, kind, module):
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed here; pip uninstall it to see this test run")
    bench = bench_of(tmp_path, f"boards: {{A1: {{instrument: {kind}, address: x, point: mcu, voltage: 3.3V}}}}")
    with pytest.raises(HardwareAbsent, match="needs the Python package .*, which is not installed; pip install"):
        open_instrument(bench, "A1")


def test_a_board_without_an_instrument_is_named(tmp_path):
    with pytest.raises(
        HardwareAbsent, match="no instrument for the board with probe 77, boards are 066DFF505053846867, 0668"
    ):
        open_instrument(bench_of(tmp_path, GOOD), "77")


def test_reading_the_file_loads_no_instrument_code():
    code = "import sys, hil.bench.bench_file, hil.bench.locks; print({'numpy', 'pyvisa', 'serial'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
