"""The interface of every meter: the order of its calls, what it refuses, what each instrument says of itself."""

from __future__ import annotations

from contextlib import contextmanager
from math import hypot

import numpy as np
import pytest

from hil.instruments.instrument import Capture, Description, Instrument, Range, VoltageKnown, power_accuracy
from hil.instruments.joulescope import Joulescope
from hil.instruments.lpm01a import Lpm01a
from hil.instruments.n6705 import N6705, N6705Wiring
from hil.instruments.otii import Otii
from hil.instruments.ppk2 import Ppk2
from hil.instruments.scpi import refuse_lost, refuse_over_range
from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.timeline import Board, Timeline
from hil.instruments.trace import Accuracy, Trace
from hil.instruments.truevolt import Shunt, Truevolt
from pipeline.errors import InstrumentError
from tests.hil.instruments.test_optional_instruments import StandInJoulescope, StandInOtii, StandInPpk2

RANGES = (Range(0.1, 0.0, 0.0), Range(1.0, 0.0, 0.0), Range(3.0, 0.0, 0.0))


class Meter(Instrument):
    """Does nothing but note its calls."""

    def __init__(self, edge_trigger: bool = True) -> None:
        super().__init__()
        self.description = Description("meter", "stub", RANGES, 1e-3, 1000, 0.0, True, edge_trigger)
        self.calls: list[str] = []

    def _arm(self, capture: Capture) -> None:
        self.calls.append("arm")

    def _trigger(self) -> None:
        self.calls.append("trigger")

    def _read(self, capture: Capture) -> Trace:
        self.calls.append("read")
        return Trace("meter", 0.0, 1e-3, np.zeros(capture.samples), "mean", Accuracy(0.0, 0.0, 0.0, 0.0))

    def _close(self) -> None:
        self.calls.append("close")


class Session:
    """A SCPI session that answers every query with the same number and value."""

    name, answer, value = "meter", 0.0, 0.05

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._points = 0

    def write(self, *commands: str) -> None:
        self.sent += commands
        for command in commands:
            if command.startswith(("SENS:SWE:POIN", "SAMP:COUN ")):
                self._points = int(command.split(" ")[1].partition(",")[0])

    def number(self, command: str) -> float:
        return 20.48e-6 if "TINT" in command or "TIM" in command else self.answer

    def values(self, command: str, data_format: str) -> np.ndarray:
        return np.full(self._points, self.value)

    def __getattr__(self, name: str):
        return lambda *arguments: None


def read_once(meter: Instrument, capture: Capture) -> Trace:
    meter.arm(capture)
    if capture.trigger == "software":
        meter.trigger()
    return meter.read()


def test_arm_trigger_read_and_then_from_the_start_again():
    meter = Meter()
    for _ in range(2):
        with pytest.raises(InstrumentError, match="triggered while it is not armed"):
            meter.trigger()
        assert len(read_once(meter, Capture(1.0, 1e-3)).power_w) == 1000
        with pytest.raises(InstrumentError, match="read before it was armed and triggered"):
            meter.read()
    meter.arm(Capture(1.0, 1e-3))
    with pytest.raises(InstrumentError, match="read before it was armed and triggered"):
        meter.read()
    assert meter.calls == ["arm", "trigger", "read"] * 2 + ["arm"]


def test_an_armed_edge_needs_no_trigger_until_it_is_closed_or_armed_anew():
    meter = Meter()
    meter.arm(Capture(1.0, 1e-3, "edge"))
    with pytest.raises(InstrumentError, match="triggered while an edge-triggered capture is waiting"):
        meter.trigger()
    meter.arm(Capture(1.0, 1e-3))
    meter.trigger()
    with meter:
        pass
    with pytest.raises(InstrumentError, match="read before"):
        meter.read()
    assert meter.calls == ["arm", "arm", "trigger", "close"]


def test_what_fits_exactly_is_taken():
    meter = Meter()
    meter.arm(Capture(1.0, 1e-3))
    meter.arm(Capture(1e-3, 1e-3))
    assert Capture(1e-3, 1e-3).samples == 2, "one sample is no trace"
    meter.arm(Capture(1.0, 1e-3, "edge", pre_trigger_s=0.999))
    assert meter.calls == ["arm"] * 3
    assert (meter.interval_for(0.5), meter.interval_for(4.0)) == (1e-3, 4e-3)
    assert [meter.description.range_for(amperes) for amperes in (0.1, 0.2, 3.0)] == list(RANGES)
    with pytest.raises(InstrumentError, match=r"3\.1 A asked for, its widest range ends at 3 A"):
        meter.description.range_for(3.1)


@pytest.mark.parametrize(
    ("capture", "message"),
    [
        (Capture(0.1, 0.999e-3), r"samples every 0\.000999 s asked for, its fastest is every 0\.001 s"),
        (Capture(1.001, 1e-3), "1001 samples asked for, it takes 1000"),
        (Capture(1.0, 1e-3, "edge", pre_trigger_s=1.0), "1 s before the trigger do not fit 1 s"),
        (Capture(1.0, 1e-3, "edge", pre_trigger_s=-0.1), "do not fit"),
        (Capture(1.0, 1e-3, pre_trigger_s=0.1), "pre_trigger_s needs an edge"),
    ],
)
def test_what_does_not_fit_is_refused(capture, message):
    meter = Meter()
    with pytest.raises(InstrumentError, match=message):
        meter.arm(capture)
    assert meter.calls == []


def test_an_edge_is_refused_where_there_is_no_trigger_input():
    with pytest.raises(InstrumentError, match="has no trigger input"):
        Meter(edge_trigger=False).arm(Capture(1.0, 1e-3, "edge"))


def test_errors_of_current_and_voltage_add_in_quadrature():
    found = power_accuracy(Range(1.0, 0.03, 2e-3), VoltageKnown(3.0, 0.04, 0.5), 0.016, 1e-4, 2e-5)
    assert found == Accuracy(pytest.approx(0.05), pytest.approx(hypot(6e-3, 8e-3)), 1e-4, 2e-5)


def test_samples_beyond_the_range_are_counted_and_the_first_is_named():
    refuse_over_range("meter", np.array([1.0, -1.0]), 1.0, "A", "advice")
    for bad in (1.01, -1.01, np.nan, np.inf):
        with pytest.raises(InstrumentError, match=r"over-range, 2 of 4 samples beyond 1 A, first at number 1; advice"):
            refuse_over_range("meter", np.array([0.0, bad, 0.5, bad]), 1.0, "A", "advice")
    refuse_lost("meter", 3, 3)
    for found in (2, 4):
        with pytest.raises(InstrumentError, match=f"lost samples, {found} came, needed 3"):
            refuse_lost("meter", found, 3)


@contextmanager
def lpm01a():
    with SimulatedLpm01a(Board(Timeline.steps([(1.0, 0.02)]), voltage_v=1.8)) as shield:
        yield Lpm01a(shield.port, voltage_v=1.8)


@pytest.mark.parametrize(
    ("opened", "min_interval_s", "max_samples", "sees_edges", "edge_trigger"),
    [
        (lambda: N6705(Session(), N6705Wiring(edge_channel=2)), 5.12e-6, 20_000_000, True, True),
        (lambda: N6705(Session()), 5.12e-6, 20_000_000, False, True),
        (lambda: Truevolt(Session(), Shunt(0.1, 3.3)), 20e-6, 50_000, False, True),
        (lpm01a, 200e-6, 500_000, True, False),
        (lambda: Joulescope(package=StandInJoulescope()), 1e-6, 30_000_000, True, False),
        (lambda: Ppk2("port", voltage_v=3.3, package=StandInPpk2()), 10e-6, 12_000_000, True, False),
        (lambda: Otii(voltage_v=3.3, package=StandInOtii()), 250e-6, 2_400_000, True, False),
    ],
    ids=["n6705", "n6705 without edges", "truevolt", "lpm01a", "joulescope", "ppk2", "otii"],
)
def test_each_instrument_describes_itself(opened, min_interval_s, max_samples, sees_edges, edge_trigger):
    with opened() as meter:
        known = meter.description
    assert known.min_interval_s == pytest.approx(min_interval_s)
    assert (known.max_samples, known.sees_edges, known.edge_trigger) == (max_samples, sees_edges, edge_trigger)


@pytest.mark.parametrize("answer", [0, 128, 256, 8192])
def test_the_n6705_may_regulate(answer):
    meter = N6705(session := Session())
    session.answer = answer
    assert len(read_once(meter, Capture(1e-3, 20.48e-6)).power_w) == 49


@pytest.mark.parametrize("answer", [1, 2, 64, 512, 4096])
def test_the_n6705_in_trouble_makes_no_trace(answer):
    meter = N6705(session := Session())
    session.answer = answer
    with pytest.raises(InstrumentError, match=f"channel 1 reports questionable status {answer:#06x}"):
        read_once(meter, Capture(1e-3, 20.48e-6))


def test_the_scope_of_the_n6705_takes_so_many_samples_and_no_more():
    meter = N6705(session := Session(), N6705Wiring(channel=3, edge_channel=4))
    meter.arm(Capture(262_144 * 20.48e-6, 20.48e-6))
    assert "INIT:ACQ (@3,4)" in session.sent
    with pytest.raises(InstrumentError, match="262145 samples need the data log"):
        meter.arm(Capture(262_145 * 20.48e-6, 20.48e-6))
    assert [meter.interval_for(seconds) / 20.48e-6 for seconds in (1.0, 5.3, 5.4)] == pytest.approx([1, 1, 2])
    with pytest.raises(InstrumentError, match="at best one sample every 0.0002048 s"):
        N6705(Session()).arm(Capture(60.0, 204e-6))


def test_half_of_the_pins_voltage_tells_high_from_low():
    class PinSession(Session):
        def values(self, command: str, data_format: str) -> np.ndarray:
            found = super().values(command, data_format)
            if command.endswith("(@2)"):
                found[:], found[10:20] = 3.3, 1.2
            return found

    meter = N6705(PinSession(), N6705Wiring(edge_channel=2))
    crossing = 9 + (3.3 - 1.65) / (3.3 - 1.2)
    assert read_once(meter, Capture(1e-3, 20.48e-6)).edges_s == pytest.approx((crossing * 20.48e-6,))


@pytest.mark.parametrize(
    ("answer", "message"),
    [(1, "voltage overload"), (4, "timing violation"), (16384, "overrun"), (16384 + 2, "overrun")],
)
def test_the_truevolt_tells_what_is_questionable(answer, message):
    meter = Truevolt(session := Session(), Shunt(0.1, 3.3))
    session.answer = answer
    with pytest.raises(InstrumentError, match=message):
        read_once(meter, Capture(1e-3, 20.48e-6))


def test_the_truevolt_turns_volts_over_the_shunt_into_the_boards_power():
    meter = Truevolt(session := Session(), Shunt(ohm=0.2, supply_v=3.3, ohm_tolerance=0.001, max_current_a=0.5))
    session.answer = 2 + 8  # other questionable bits mean nothing here
    trace = read_once(meter, Capture(2e-3, 20.48e-6, "edge", pre_trigger_s=1e-3))
    assert trace.current_a == pytest.approx(np.full(98, 0.25))
    assert trace.voltage_v == pytest.approx(np.full(98, 3.25))
    assert trace.power_w == pytest.approx(np.full(98, 0.25 * 3.25))
    assert trace.t0_s == pytest.approx(10e-6 - 49 * 20.48e-6)
    assert trace.edges_s == (0.0,)
    assert trace.accuracy.edge_s == pytest.approx(10.24e-6)
    assert trace.accuracy.offset_w == pytest.approx(50e-6 * 0.1 / 0.2 * 3.3)
    expected = [Range(volts / 0.2, hypot(50e-6, 0.001), 50e-6 * volts / 0.2) for volts in (0.1, 1.0, 10.0)]
    assert list(meter.description.ranges) == expected
    assert "CONF:VOLT:DC 0.1" in session.sent, "0.5 A over 0.2 ohm just fit"
    assert read_once(meter, Capture(2e-3, 20.48e-6)).edges_s == ()
    session.value = 0.13
    with pytest.raises(InstrumentError, match=r"98 of 98 samples beyond 0\.12 V over the shunt"):
        read_once(meter, Capture(2e-3, 20.48e-6))


def test_the_lpm01a_has_six_rates():
    with (
        SimulatedLpm01a(Board(Timeline.steps([(1.0, 0.02)]), voltage_v=1.8)) as shield,
        Lpm01a(shield.port, voltage_v=1.8) as meter,
    ):
        assert meter.interval_for(60.0) == pytest.approx(200e-6)
        for hertz in (5000, 2000, 1000, 500, 200, 100):
            meter.arm(Capture(0.1, 1 / hertz))
        meter.arm(Capture(100.0, 0.01))
        with pytest.raises(InstrumentError, match="it takes at most 100 s"):
            meter.arm(Capture(100.1, 0.01))
        rates = [command for command in shield.commands if command.startswith("freq")]
        assert shield.commands.count("pwr on nostatus") == 1, "power cycling would restart the board"
    assert rates == ["freq 5k", "freq 2k", "freq 1k", "freq 500", "freq 200", "freq 100", "freq 100"]
