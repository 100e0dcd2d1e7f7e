"""Joulescope, PPK2 and Otii adapters, against stand-ins with the calls of their packages (no such device is here)."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from hil.instruments.energy import edge_windows, measure
from hil.instruments.instrument import Capture, optional_package
from hil.instruments.joulescope import Joulescope
from hil.instruments.otii import Otii
from hil.instruments.ppk2 import Ppk2
from hil.instruments.simulated.timeline import Board, Timeline
from pipeline.errors import HardwareAbsent, InstrumentError

TIMELINE = Timeline.of_runs([(0.05, 0.9)], runs=2, idle_s=0.02, idle_w=0.3)
BOARD = Board(TIMELINE)
ENERGY_J = 0.05 * 0.9


def currents_and_pin(interval_s, samples):
    times_s = interval_s * np.arange(samples)
    return BOARD.mean_currents_a(0.0, interval_s, samples), TIMELINE.pin_v(times_s, 1.0, 2e-3)


class StandInJoulescope:
    """`joulescope.scan()` and a device."""

    serial_number, has_company = "000415", False

    def __init__(self, spoil=lambda current_a: current_a):
        self.parameters, self.closed, self.stopped, self._spoil = {}, False, False, spoil

    def scan(self, config):
        return [self, SimpleNamespace(serial_number="other")] if self.has_company else [self]

    def open(self):
        pass

    def stop(self):
        self.stopped = True

    def close(self):
        self.closed = True

    def parameter_set(self, name, value):
        self.parameters[name] = value

    def read(self, contiguous_duration, out_format, fields):
        interval_s = 1 / self.parameters["sampling_frequency"]
        current_a, pin = currents_and_pin(interval_s, round(contiguous_duration / interval_s))
        current_a = self._spoil(current_a)
        values = {"current": current_a, "voltage": np.full(len(current_a), BOARD.voltage_v), "current_lsb": pin}
        return {"signals": {name: {"value": values[name][: len(current_a)]} for name in fields}}


class StandInPpk2:
    """`ppk2_api.PPK2_API`: words of four bytes, each with its counter."""

    def __init__(self, words=lambda numbers: numbers, samples=lambda current_ua: current_ua, cut=0):
        self.calls, self._words, self._samples, self._cut, self._sent = [], words, samples, cut, None

    def PPK2_API(self, port, **options):
        self.calls.append(port)
        return self

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))

    def start_measuring(self):
        self._sent, self._began, self._kept = 0, time.monotonic(), b""

    def get_data(self):
        if self._sent is None:
            return b""
        due = int((time.monotonic() - self._began) / 10e-6)
        numbers = self._words(np.arange(self._sent, due))
        self._sent = due
        whole = self._kept + ((numbers & 0x3F) << 18).astype("<u4").tobytes()
        end = max(0, len(whole) - self._cut)  # a read may end within a word
        self._kept = whole[end:]
        return whole[:end]

    def get_samples(self, data):
        assert len(data) % 4 == 0
        count = len(data) // 4
        current_a, pin = currents_and_pin(10e-6, self._sent - len(self._kept) // 4)
        return self._samples(list(1e6 * current_a[-count:])), [0xFE | int(level) for level in pin[-count:]]


class StandInOtii:
    """`otii_tcp_client.otii_client`."""

    LicensingMode, devices = SimpleNamespace(MANUAL="manual"), 1

    def __init__(self, keep=1.0, fail=False):
        self.name, self.id, self.calls, self._keep, self._fail = "Arc I", "Arc1", [], keep, fail

    def OtiiClient(self):
        return self

    def connect(self, host, licensing):
        return self

    def get_devices(self):
        return [self] * self.devices

    def create_project(self):
        return self

    def get_last_recording(self):
        return self

    def start_recording(self):
        if self._fail:
            raise RuntimeError("no licence")

    def get_channel_data_count(self, device_id, channel):
        return round(self._keep * 640)

    def get_channel_data(self, device_id, channel, index, count):
        current_a, _ = currents_and_pin(1 / 4000, count)
        if channel == "mc":
            return {"timestamp": 0.0, "interval": 1 / 4000, "values": list(current_a)}
        changes = [(edge_s, False) for edge_s in TIMELINE.edges_s] + [
            (edge_s + 2e-3, True) for edge_s in TIMELINE.edges_s
        ]
        return {"values": [{"timestamp": at_s, "value": level} for at_s, level in sorted(changes)]}

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.mark.parametrize(
    ("meter", "interval_s"),
    [
        (lambda: Joulescope("000415", package=StandInJoulescope()), 1e-5),
        (lambda: Ppk2("port", voltage_v=3.3, package=StandInPpk2(cut=3)), 1e-5),
        (lambda: Otii(voltage_v=3.3, package=StandInOtii()), 1 / 4000),
    ],
    ids=["joulescope", "ppk2", "otii"],
)
def test_a_known_energy_comes_out(meter, interval_s):
    with meter() as opened:
        opened.arm(Capture(0.16, interval_s))
        opened.trigger()
        trace = opened.read()
    report = measure(trace, edge_windows(trace, 2))
    assert report.energy_j == pytest.approx(ENERGY_J, rel=1e-3)
    assert report.idle is not None
    assert report.idle.mean_w == pytest.approx(0.3, rel=0.02)


def with_nan(current_a):
    current_a[5] = np.nan
    return current_a


def fails(_):
    raise OSError("the device is gone")


def stays_silent(current_a):
    time.sleep(0.5)
    return current_a


def without_one(numbers):
    return numbers[numbers != 5000]


@pytest.mark.parametrize(
    ("meter", "interval_s", "message"),
    [
        (lambda: Joulescope(package=StandInJoulescope(with_nan)), 1e-5, "1 of 16000 samples are no numbers"),
        (
            lambda: Joulescope(package=StandInJoulescope(lambda a: a[:-9])),
            1e-5,
            "lost samples, 15991 came, needed 16000",
        ),
        (lambda: Joulescope(package=StandInJoulescope(lambda a: a * 20)), 1e-5, "over-range, .* beyond 3 A"),
        (lambda: Joulescope(package=StandInJoulescope(fails)), 1e-5, r"reading failed \(the device is gone\)"),
        (lambda: Joulescope(package=StandInJoulescope(stays_silent), margin_s=0.1), 1e-5, "the trigger did not come"),
        (
            lambda: Ppk2("p", voltage_v=3.3, package=StandInPpk2(words=without_one)),
            1e-5,
            "lost samples after number 5000",
        ),
        (lambda: Ppk2("p", voltage_v=3.3, package=StandInPpk2(words=fails)), 1e-5, r"reading failed \(the device is"),
        (
            lambda: Ppk2("p", voltage_v=3.3, margin_s=0.1, package=StandInPpk2(words=lambda numbers: numbers[:0])),
            1e-5,
            "the trigger did not come, or it fell silent",
        ),
        (lambda: Ppk2("p", voltage_v=3.3, package=StandInPpk2(samples=lambda a: a[1:])), 1e-5, "lost samples, .* came"),
        (
            lambda: Ppk2("p", voltage_v=3.3, package=StandInPpk2(samples=lambda a: [2e6] * len(a))),
            1e-5,
            "over-range, 16000 of",
        ),
        (lambda: Otii(voltage_v=3.3, package=StandInOtii(keep=0.9)), 1 / 4000, "lost samples, 576 came, needed 640"),
        (lambda: Otii(voltage_v=3.3, max_current_a=0.2, package=StandInOtii()), 1 / 4000, "over-range, 4.. of 640"),
        (lambda: Otii(voltage_v=3.3, package=StandInOtii(fail=True)), 1 / 4000, r"starting failed \(no licence\)"),
    ],
)
def test_what_went_wrong_is_an_error(meter, interval_s, message):
    with meter() as opened:
        opened.arm(Capture(0.16, interval_s))
        with pytest.raises(InstrumentError, match=message):
            opened.trigger()
            opened.read()


def test_a_large_gap_in_the_stream_of_a_ppk2_is_seen_on_the_clock():
    """Exactly 64 of every 128 words are lost: the counters fit."""
    stand_in = StandInPpk2(words=lambda numbers: numbers[(numbers // 64) % 2 == 0])
    stand_in.get_samples = lambda data: (list(np.full(len(data) // 4, 1e5)), [1] * (len(data) // 4))
    with Ppk2("p", voltage_v=3.3, package=stand_in) as meter:
        meter.arm(Capture(0.3, 1e-5))
        meter.trigger()
        with pytest.raises(InstrumentError, match=r"lost samples, \d+ took 0\.[6-9]\d+ s, needed 0\.[3-4]\d+ s"):
            meter.read()


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(HardwareAbsent, match="Gadget: needs the Python package gadget-api, .*; pip install gadget-api"):
        optional_package("no_such_module_of_ours", "gadget-api", "Gadget")


def test_the_wrong_serial_number_is_absent():
    with pytest.raises(HardwareAbsent, match="Joulescope: 0 with serial number 7, needed one"):
        Joulescope("7", package=StandInJoulescope())


def test_the_joulescope_is_chosen_among_others_and_its_buffer_holds_the_capture_twice():
    scope = StandInJoulescope()
    scope.has_company = True
    with pytest.raises(HardwareAbsent, match="Joulescope: 2 attached, needed one"):
        Joulescope(package=scope)
    with Joulescope("000415", package=scope) as meter:
        meter.arm(Capture(0.3, 1e-3))
        assert scope.parameters == {"sampling_frequency": 1000, "buffer_duration": 1.0}
        meter.arm(Capture(2.0, 1e-5))
        assert scope.parameters == {"sampling_frequency": 100_000, "buffer_duration": 4.0}
        for hertz in (1_000_000, 500_000, 200_000, 50_000, 20_000, 10_000, 5_000, 2_000):
            meter.arm(Capture(0.3, 1 / hertz))
        meter.arm(Capture(30.0, 1e-3))
        for capture in (Capture(30.1, 1e-3), Capture(0.3, 1 / 3000)):
            with pytest.raises(InstrumentError):
                meter.arm(capture)
    assert (scope.closed, scope.stopped) == (True, False)
    with Joulescope("000415", package=scope) as meter:
        meter.arm(Capture(0.3, 1e-3))
        meter.trigger()
    assert scope.stopped, "a capture under way is ended"


def test_the_ppk2_supplies_the_board_and_is_left_switched_off():
    kit = StandInPpk2()
    with Ppk2("port", voltage_v=1.8, package=kit) as meter:
        for interval_s in (2e-5, 1.1e-5):
            with pytest.raises(InstrumentError, match="samples every 1e-05 s, no other interval"):
                meter.arm(Capture(0.16, interval_s))
        assert ("set_source_voltage", 1800) in kit.calls
        meter.arm(Capture(10.0, 1e-5))
        meter.trigger()
    assert kit.calls[-2:] == [("stop_measuring",), ("toggle_DUT_power", "OFF")]


def test_the_otii_supplies_the_board_and_is_left_switched_off():
    otii = StandInOtii()
    with Otii("Arc I", voltage_v=1.8, max_current_a=0.25, package=otii) as meter:
        with pytest.raises(InstrumentError, match="samples at 4000 Hz, at no other rate"):
            meter.arm(Capture(0.16, 1 / 2000))
        meter.arm(Capture(0.16, 1 / 4000))
    assert otii.calls == [
        ("add_to_project",),
        ("set_main_voltage", 1.8),
        ("set_max_current", 0.25),
        ("enable_channel", "mc", True),
        ("enable_channel", "i1", True),
        ("set_main", True),
        ("set_main", False),
        ("disconnect",),
    ]
    for name, devices in (("Ace", 1), ("Arc1", 2), ("", 0)):
        otii.devices = devices
        with pytest.raises(HardwareAbsent, match=r"Otii at 127\.0\.0\.1: \d devices"):
            Otii(name, voltage_v=1.8, package=otii)
