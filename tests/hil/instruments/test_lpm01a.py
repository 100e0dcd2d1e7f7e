"""The LPM01A driver against the simulated one on a pseudo-terminal."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hil.instruments.energy import edge_windows, measure
from hil.instruments.instrument import Capture
from hil.instruments.lpm01a import Lpm01a, _Stream
from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.timeline import Board, Segment, Timeline
from pipeline.errors import HardwareAbsent, InstrumentError

# 40 mA at 1.8 V; the edges lie between the samples, and the power does not step at them
TIMELINE = Timeline(
    (Segment(0.3, 0.02, 0.02), Segment(1.2, 0.06, 0.06), Segment(0.8, 0.06, 0.04), Segment(0.3, 0.04, 0.02)),
    (0.4003, 2.1997),
)
SHORT = Timeline.of_runs([(0.2, 0.06)], runs=1, idle_s=0.1, idle_w=0.02)


def test_a_known_energy_is_reported_to_a_thousandth():
    with SimulatedLpm01a(Board(TIMELINE, voltage_v=1.8)) as shield, Lpm01a(shield.port, voltage_v=1.8) as meter:
        meter.arm(Capture(2.6, 1e-3))
        meter.trigger()
        trace = meter.read()
    report = measure(trace, edge_windows(trace, 1))
    at_the_end_w = 0.06 - 0.02 * (2.1997 - 1.5) / 0.8
    energy_j = (1.5 - 0.4003) * 0.06 + (2.1997 - 1.5) * (0.06 + at_the_end_w) / 2
    assert report.energy_j == pytest.approx(energy_j, rel=1e-3)
    assert abs(report.energy_j - energy_j) <= report.two_sigma_j
    assert trace.edges_s == pytest.approx((0.4003, 2.1997), abs=1e-3)


def test_the_commands_are_those_of_the_stock_runner():
    with SimulatedLpm01a(Board(SHORT, voltage_v=1.8)) as shield, Lpm01a(shield.port, voltage_v=1.8) as meter:
        meter.arm(Capture(0.4, 1e-3))
        meter.trigger()
        meter.read()
        meter.close()
        commands = shield.commands
    assert commands == [
        "htc",
        "pwr off",
        "acqtime 400m",
        "trigdelay 0",
        "trigsrc sw",
        "eventsrc d7 fal",
        "output energy",
        "format ascii_dec",
        "freq 1k",
        "volt 1800m",
        "pwr on nostatus",
        "start",
        "pwr off",
        "hrc",
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("garbage", "'...' after 50 samples is neither sample nor message"),
        ("lost", "lost samples"),
        ("no_trigger", "the trigger did not come, or it fell silent"),
        ("over_range", "over-range"),
        ("overrun", "overrun, its buffer is full"),
        ("silence", "the trigger did not come, or it fell silent"),
        ("torn", "after 50 samples is neither sample nor message; bytes were lost"),
    ],
)
def test_a_fault_is_an_error_and_the_next_capture_is_right(fault, message):
    board = Board(SHORT, voltage_v=1.8, faults=[fault])
    with SimulatedLpm01a(board) as shield, Lpm01a(shield.port, voltage_v=1.8, margin_s=0.2) as meter:
        for expected in (message, None):
            meter.arm(Capture(0.4, 1e-3))
            meter.trigger()
            if expected is not None:
                began = time.monotonic()
                with pytest.raises(InstrumentError, match=expected):
                    meter.read()
                assert time.monotonic() - began < 3.0
        trace = meter.read()
    assert float(np.sum(trace.power_w)) * trace.dt_s == pytest.approx(0.2 * 0.06 + 0.2 * 0.02, rel=1e-3)


def test_lost_samples_show_in_the_time_stamps_before_the_end():
    board = Board(SHORT, voltage_v=1.8, faults=["lost"])
    with SimulatedLpm01a(board) as shield, Lpm01a(shield.port, voltage_v=1.8) as meter:
        meter.arm(Capture(1.5, 1e-3))
        meter.trigger()
        with pytest.raises(InstrumentError, match=r"lost samples, \d+ came within \d\.\d00 s of its time"):
            meter.read()


@pytest.mark.parametrize(("samples", "fits"), [(994, False), (995, True), (1003, True), (1004, False)])
def test_a_time_stamp_must_fit_the_samples_before_it(samples, fits):
    """Within two samples, a millisecond and 0.2 % of 999 ms."""
    stream = _Stream("shield", 1e-3)
    for _ in range(samples):
        assert not stream.take("PowerShield > 1800-07")
    stamp = "TimeStamp: 000s 999ms, buff 99%"
    if fits:
        assert not stream.take(stamp)
    else:
        with pytest.raises(InstrumentError, match=rf"lost samples, {samples} came within 0\.999 s .*needed 999"):
            stream.take(stamp)
    with pytest.raises(InstrumentError, match="overrun, its buffer is full"):
        stream.take("TimeStamp: 000s 999ms, buff 100%")
    assert stream.energies_j == pytest.approx([180e-6] * samples)
    for line in ("event 3 fal", "summary beg", "Energy 7", ""):
        assert not stream.take(line)
    assert stream.edges == [samples]
    assert stream.take("Acquisition completed")


def test_a_port_that_vanishes_is_an_error():
    board = Board(SHORT, voltage_v=1.8, faults=["vanish"])
    with SimulatedLpm01a(board) as shield, Lpm01a(shield.port, voltage_v=1.8, margin_s=0.2) as meter:
        meter.arm(Capture(0.4, 1e-3))
        with pytest.raises(InstrumentError, match="the port vanished"):
            meter.trigger()
            meter.read()


def test_more_current_than_it_supplies_is_an_error():
    board = Board(Timeline.steps([(1.0, 0.1)]), voltage_v=1.8)  # 56 mA
    with SimulatedLpm01a(board) as shield, Lpm01a(shield.port, voltage_v=1.8) as meter:
        meter.arm(Capture(0.1, 1e-3))
        meter.trigger()
        with pytest.raises(InstrumentError, match=r"over-range, 100 of 100 samples beyond 0\.05 A"):
            meter.read()


def test_what_it_cannot_do_is_refused():
    with SimulatedLpm01a(Board(SHORT, voltage_v=1.8)) as shield, Lpm01a(shield.port, voltage_v=1.8) as meter:
        with pytest.raises(InstrumentError, match="it takes at most 100 s at 5000, 2000, 1000"):
            meter.arm(Capture(0.1, 0.7e-3))
        with pytest.raises(InstrumentError, match="has no trigger input"):
            meter.arm(Capture(0.1, 1e-3, "edge"))
    with pytest.raises(InstrumentError, match=r"5 V asked for, an LPM01A supplies 1\.8 to 3\.3 V"):
        Lpm01a("/dev/null", voltage_v=5.0)


def test_a_port_that_is_not_there_is_absent(tmp_path):
    with pytest.raises(HardwareAbsent, match="cannot be opened .* is it attached"):
        Lpm01a(str(tmp_path / "ttyACM9"), voltage_v=1.8)
