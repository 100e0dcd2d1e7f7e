"""The simulated instruments' own replies, against what the timeline says was drawn."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import serial

from hil.instruments.simulated.lpm01a import SimulatedLpm01a
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.timeline import Board, Segment, Timeline
from hil.instruments.simulated.truevolt import SimulatedTruevolt

RAMP = Timeline((Segment(0.01, 0.2, 0.2), Segment(0.02, 0.33, 0.99), Segment(0.01, 0.2, 0.2)), (0.01, 0.03))
STEP_S = 20.48e-6


def numbers(reply: bytes) -> list[float]:
    return [float(word) for word in reply.decode().strip().split(",")]


def analyser(*faults: str, source: str = "EXT", points: int = 100) -> SimulatedN6705:
    device = SimulatedN6705(Board(RAMP, faults=list(faults)))
    device.execute(f"SENS:SWE:TINT {STEP_S:.8E},(@1);SENS:SWE:POIN {points},(@1);SENS:SWE:OFFS:POIN -10,(@1)")
    device.execute(f"TRIG:ACQ:SOUR {source},(@1);INIT:ACQ (@1,2)")
    return device


def test_the_scope_samples_points_around_the_edge_that_triggered():
    device = analyser()
    assert [device.execute("STAT:OPER:COND? (@1)") for _ in range(4)] == [b"32\n", b"32\n", b"0\n", b"0\n"]
    times_s = 0.01 + STEP_S * np.arange(-10, 90)
    currents_a = numbers(device.execute("FETC:ARR:CURR? (@1)"))
    assert currents_a == pytest.approx(RAMP.power_w(times_s) / 3.3, rel=1e-8)
    assert numbers(device.execute("FETC:ARR:VOLT? (@1)")) == [3.3] * 100
    pin_v = numbers(device.execute("FETC:ARR:VOLT? (@2)"))
    assert pin_v == [3.3] * 10 + [0.0] * 10 + [3.3] * 80, "low for 200 us"
    assert device.execute("STAT:QUES:COND? (@1);SYST:ERR?") == b'0;+0,"No error"\n'


def test_without_an_edge_the_scope_waits_for_its_trigger():
    device = analyser(source="BUS")
    assert [device.execute("STAT:OPER:COND? (@1)") for _ in range(4)] == [b"32\n"] * 4
    device.execute("TRIG:ACQ (@1,2)")
    assert [device.execute("STAT:OPER:COND? (@1)") for _ in range(3)] == [b"32\n", b"32\n", b"0\n"]
    times_s = STEP_S * np.arange(-10, 90)
    assert numbers(device.execute("FETC:ARR:CURR? (@1)")) == pytest.approx(RAMP.power_w(times_s) / 3.3, rel=1e-8)
    device.execute("INIT:ACQ (@1)")
    assert device.execute("STAT:OPER:COND? (@1)") == b"32\n"


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        (1e-6, 5.12e-6),
        (5.12e-6, 5.12e-6),
        (5.2e-6, 10.24e-6),
        (20e-6, STEP_S),
        (50e-6, 2 * STEP_S),
        (52e-6, 3 * STEP_S),
    ],
)
def test_intervals_are_rounded_to_the_grid(asked, made):
    device = SimulatedN6705(Board(RAMP))
    device.execute(f"SENS:SWE:TINT {asked:.8E},(@1)")
    assert float(device.execute("SENS:SWE:TINT? (@1)")) == pytest.approx(made)
    device.execute(f"SENS:ELOG:PER {asked:.8E},(@1)")
    assert float(device.execute("SENS:ELOG:PER? (@1)")) == pytest.approx(5 * STEP_S)
    device.execute(f"SENS:ELOG:PER {7.2 * STEP_S:.8E},(@1)")
    assert float(device.execute("SENS:ELOG:PER? (@1)")) == pytest.approx(7 * STEP_S)


def test_the_data_log_goes_on_where_the_last_fetch_ended():
    device = SimulatedN6705(Board(RAMP))
    device.execute(f"SENS:ELOG:PER {10 * STEP_S:.8E},(@1);INIT:ELOG (@1)")
    assert device.execute("FETC:ELOG? 3,(@1)") == b"\n"
    device.execute("TRIG:ELOG (@1)")
    period_s = 10 * STEP_S
    for first, count in ((0, 60), (60, 3)):
        found = np.reshape(numbers(device.execute(f"FETC:ELOG? {count},(@1)")), (-1, 2))
        edges_s = period_s * np.arange(first, first + count + 1)
        expected_a = np.diff(RAMP.energy_until_j(edges_s)) / period_s / 3.3
        assert found[:, 0] == pytest.approx(expected_a, rel=1e-7)
        assert list(found[:, 1]) == [3.3] * count
    assert len(numbers(device.execute("FETC:ELOG? 5000,(@1)"))) == 2 * 4096
    device.execute("INIT:ELOG (@1);TRIG:ELOG (@1)")
    assert numbers(device.execute("FETC:ELOG? 1,(@1)"))[0] == pytest.approx(0.2 / 3.3, rel=1e-7)


def test_faults_of_the_scope_and_of_the_data_log():
    assert len(numbers(analyser("lost").execute("FETC:ARR:CURR? (@1)"))) == 98
    assert len(numbers(analyser("lost", points=4).execute("FETC:ARR:CURR? (@1)"))) == 3
    device = analyser("over_range")
    assert [index for index, value in enumerate(numbers(device.execute("FETC:ARR:CURR? (@1)"))) if value > 9e37] == [50]
    assert device.execute("STAT:QUES:COND? (@1)") == b"2\n"
    device = analyser("overrun")
    device.execute("FETC:ARR:CURR? (@1)")
    assert device.execute("SYST:ERR?").startswith(b"-222,")
    whole = analyser().execute("FETC:ARR:CURR? (@1)")
    assert analyser("torn").execute("FETC:ARR:CURR? (@1)") == whole[: (len(whole) - 1) // 2] + b"\n"
    assert analyser("silence").execute("FETC:ARR:CURR? (@1)") == b""
    assert analyser("no_trigger").execute("STAT:OPER:COND? (@1);STAT:OPER:COND? (@1);STAT:OPER:COND? (@1)") == (
        b"32;32;32\n"
    )
    for fault, count, error in (("lost", 7, "+0"), ("overrun", 8, "-350"), ("over_range", 8, "+0")):
        device = SimulatedN6705(Board(RAMP, faults=[fault]))
        device.execute("INIT:ELOG (@1);TRIG:ELOG (@1)")
        found = numbers(device.execute("FETC:ELOG? 4,(@1)"))
        assert len(found) == count
        assert [index for index, value in enumerate(found) if value > 9e37] == ([4] if fault == "over_range" else [])
        assert device.execute("SYST:ERR?").decode().startswith(error)


def multimeter(*faults: str, source: str = "EXT", count: int = 100) -> SimulatedTruevolt:
    device = SimulatedTruevolt(Board(RAMP, faults=list(faults)), 0.5)
    device.execute(f"CONF:VOLT:DC 1;VOLT:DC:APER 2E-5;SAMP:TIM 1E-4;SAMP:COUN {count};SAMP:COUN:PRET 10")
    device.execute(f"TRIG:SOUR {source};INIT")
    return device


def test_the_multimeter_sees_the_shunt_in_the_boards_supply():
    device = multimeter()
    assert [device.execute("STAT:OPER:COND?") for _ in range(3)] == [b"16\n", b"16\n", b"0\n"]
    shunt_v = np.array(numbers(device.execute("FETC?")))
    starts_s = 0.01 + 1e-4 * np.arange(-10, 90)
    drawn_w = (RAMP.energy_until_j(starts_s + 2e-5) - RAMP.energy_until_j(starts_s)) / 2e-5
    assert shunt_v / 0.5 * (3.3 - shunt_v) == pytest.approx(drawn_w, rel=1e-6)
    assert device.execute("STAT:QUES?") == b"+0\n"
    device = multimeter(source="BUS")
    assert device.execute("STAT:OPER:COND?;STAT:OPER:COND?;STAT:OPER:COND?") == b"32;32;32\n"
    device.execute("*TRG")
    assert device.execute("STAT:OPER:COND?;STAT:OPER:COND?;STAT:OPER:COND?") == b"16;16;0\n"


@pytest.mark.parametrize(
    ("fault", "questionable", "samples", "overloads"),
    [("overrun", 16384, 100, []), ("over_range", 1, 100, [50]), ("lost", 0, 98, [])],
)
def test_faults_of_the_multimeter_stay_until_they_are_read(fault, questionable, samples, overloads):
    device = multimeter(fault)
    found = numbers(device.execute("FETC?"))
    assert len(found) == samples
    assert [index for index, value in enumerate(found) if value > 9e37] == overloads
    assert device.execute("STAT:QUES?;STAT:QUES?") == f"{questionable:+d};+0\n".encode()


def test_the_multimeter_notices_its_range_and_its_timer():
    device = multimeter()
    device.execute("CONF:VOLT:DC 0.1;SAMP:TIM 2E-4")
    assert sum(value > 9e37 for value in numbers(device.execute("FETC?"))) > 0
    assert device.execute("STAT:QUES?") == b"+1\n"
    device.execute("CONF:VOLT:DC 1;SAMP:TIM 2E-5;FETC?")
    assert device.execute("STAT:QUES?") == b"+0\n"
    device.execute("SAMP:TIM 1.9E-5;FETC?")
    assert device.execute("STAT:QUES?") == b"+4\n"
    assert len(numbers(multimeter("lost", count=4).execute("FETC?"))) == 3


def test_the_power_shield_streams_until_it_is_stopped():
    board = Board(Timeline.steps([(0.2, 0.018), (5.0, 0.036)]), voltage_v=1.8)
    with SimulatedLpm01a(board) as shield, serial.Serial(shield.port, timeout=0.05) as port:
        for command in ("freq 1k", "acqtime inf", "start"):
            port.write(f"{command}\r\n".encode())
        received, began = b"", time.monotonic()
        while time.monotonic() - began < 5.0 and b"Acquisition completed" not in received:
            received += port.read(max(1, port.in_waiting))
            if time.monotonic() - began > 0.4 and "stop" not in shield.commands:
                shield.pulse()
                time.sleep(0.05)
                port.write(b"start\r\nfreq 2k\r\nstop\r\n")
                time.sleep(0.05)
    lines = received.decode().split()
    samples = [line for line in lines if re.fullmatch(r"\d{4}[+-]\d\d", line)]
    energies_j = np.array([int(line[:4]) * 10.0 ** int(line[4:]) for line in samples])
    assert energies_j[:199] == pytest.approx(18e-6, rel=1e-3)
    assert energies_j[201:] == pytest.approx(36e-6, rel=1e-3)
    assert 300 < len(samples) < 5000
    text = " ".join(lines)
    assert re.findall(r"event \d+", text) == ["event 1"]
    assert "error start Error detail: acquisition under way" in text and "ack freq 2k" in text
    assert text.endswith("end summary beg summary end Acquisition completed")


def test_the_power_shield_tells_edges_and_seconds_between_its_samples():
    board = Board(Timeline.steps([(3.0, 0.018)], (0.0102, 0.0204)), voltage_v=1.8)
    with SimulatedLpm01a(board) as shield, serial.Serial(shield.port, timeout=0.2) as port:
        port.write(b"stop\r\nnonsense 1\r\nfreq 100\r\nacqtime 2100m\r\nstart\r\n")
        lines = [line.strip().decode() for line in port.readlines()]
    assert lines[:2] == ["error stop", "Error detail: no acquisition"]
    assert lines[2:4] == ["error nonsense 1", "Error detail: unknown command"]
    assert lines[4:7] == ["ack freq 100", "ack acqtime 2100m", "ack start"]
    data = lines[7:]
    assert data[:5] == ["1800-07", "event 1 ris", "1800-07", "event 2 ris", "1800-07"]
    stamps = [index for index, line in enumerate(data) if line.startswith("TimeStamp")]
    assert [data[index] for index in stamps] == ["TimeStamp: 001s 000ms, buff 02%", "TimeStamp: 002s 000ms, buff 02%"]
    assert [data[:index].count("1800-07") for index in (*stamps, len(data))] == [100, 200, 210]
    assert data[-4:] == ["end", "summary beg", "summary end", "Acquisition completed"]
