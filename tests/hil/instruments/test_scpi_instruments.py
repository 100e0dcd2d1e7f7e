"""The N6705 and Truevolt drivers, through PyVISA: against the simulators on TCP, and on pyvisa-sim."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from hil.instruments.energy import edge_windows, measure
from hil.instruments.instrument import Capture, Range
from hil.instruments.n6705 import N6705, N6705Wiring
from hil.instruments.scpi import ScpiSession
from hil.instruments.simulated.n6705 import SimulatedN6705
from hil.instruments.simulated.scpi_server import ScpiDevice, ScpiServer, block
from hil.instruments.simulated.timeline import Board, Segment, Timeline
from hil.instruments.simulated.truevolt import SimulatedTruevolt
from hil.instruments.simulated.visa_sim import write_definition
from hil.instruments.truevolt import Shunt, Truevolt
from pipeline.errors import HardwareAbsent, InstrumentError

SHUNT_OHM = 0.1
ROUNDS = int(os.environ.get("INSTRUMENT_ROUNDS", "100"))  # 1000 for the long proof
SHORT = Timeline.of_runs([(0.02, 0.9)], runs=1, idle_s=0.01, idle_w=0.3)


@contextmanager
def n6705(board, **options):
    wiring = N6705Wiring(edge_channel=2) if options.pop("edges", True) else N6705Wiring()
    with ScpiServer(SimulatedN6705(board)) as server:
        session = ScpiSession(server.resource, reply_s=options.pop("reply_s", 5.0))
        with N6705(session, wiring, **options) as meter:
            yield meter


@contextmanager
def truevolt(board, **options):
    with ScpiServer(SimulatedTruevolt(board, SHUNT_OHM)) as server:
        session = ScpiSession(server.resource, reply_s=options.pop("reply_s", 5.0))
        with Truevolt(session, Shunt(SHUNT_OHM, board.voltage_v), **options) as meter:
            yield meter


@dataclass(frozen=True)
class Known:
    """A trace whose energy between its two edges is told by hand."""

    timeline: Timeline
    energy_j: float
    noise_a: float = 0.0


KNOWN = {
    "step": Known(Timeline.steps([(0.05, 0.3), (0.2, 0.9), (0.05, 0.3)], (0.05, 0.25)), 0.2 * 0.9),
    "steps": Known(
        Timeline.steps([(0.05, 0.3), (0.06, 0.8), (0.04, 1.1), (0.1, 0.6), (0.05, 0.3)], (0.05, 0.25)),
        0.06 * 0.8 + 0.04 * 1.1 + 0.1 * 0.6,
    ),
    "ramps": Known(
        Timeline(
            (Segment(0.05, 0.2, 0.4), Segment(0.1, 0.4, 1.2), Segment(0.1, 1.2, 0.5), Segment(0.05, 0.5, 0.3)),
            (0.05, 0.25),
        ),
        0.1 * (0.4 + 1.2) / 2 + 0.1 * (1.2 + 0.5) / 2,
    ),
    "noise": Known(Timeline.steps([(0.05, 0.3), (0.2, 0.9), (0.05, 0.3)], (0.05, 0.25)), 0.2 * 0.9, noise_a=3e-3),
    # Edges between the samples, and not where the power steps: 13.1 ms after, 21.7 ms before.
    "offset edges": Known(
        Timeline.steps([(0.0437, 0.3), (0.2213, 0.9), (0.05, 0.3)], (0.0568077, 0.2433033)), 0.1864956 * 0.9
    ),
    "edges outside the step": Known(
        Timeline.steps([(0.0701, 0.3), (0.1503, 0.9), (0.08, 0.3)], (0.0500111, 0.2500999)),
        (0.0701 - 0.0500111) * 0.3 + 0.1503 * 0.9 + (0.2500999 - 0.2204) * 0.3,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_n6705_reports_a_known_energy_to_a_thousandth(name):
    known = KNOWN[name]
    with n6705(Board(known.timeline, noise_a=known.noise_a)) as meter:
        meter.arm(Capture(known.timeline.duration_s, 20.48e-6))
        meter.trigger()
        trace = meter.read()
    report = measure(trace, edge_windows(trace, 1))
    assert report.energy_j == pytest.approx(known.energy_j, rel=1e-3)
    assert abs(report.energy_j - known.energy_j) <= report.two_sigma_j


@pytest.mark.parametrize("name", KNOWN)
def test_the_truevolt_reports_a_known_energy_to_a_thousandth(name):
    known = KNOWN[name]
    start_s, end_s = known.timeline.edges_s
    with truevolt(Board(known.timeline, noise_a=known.noise_a)) as meter:
        meter.arm(Capture(known.timeline.duration_s, 20e-6, "edge", pre_trigger_s=0.04))
        trace = meter.read()
    report = measure(trace, edge_windows(trace, duration_s=end_s - start_s))
    assert report.energy_j == pytest.approx(known.energy_j, rel=1e-3)
    assert abs(report.energy_j - known.energy_j) <= report.two_sigma_j


def test_the_data_log_takes_long_captures():
    timeline = Timeline.steps([(1.0, 0.3), (58.0, 0.9), (1.0, 0.3)])
    with n6705(Board(timeline), edges=False) as meter:
        meter.arm(Capture(60.0, 204.8e-6))
        meter.trigger()
        trace = meter.read()
    assert trace.kind == "mean"
    assert len(trace.power_w) == round(60.0 / 204.8e-6)
    assert float(np.sum(trace.power_w) * trace.dt_s) == pytest.approx(58.0 * 0.9 + 2.0 * 0.3, rel=1e-5)


def test_five_runs_give_mean_spread_and_idle_power():
    timeline = Timeline.of_runs([(0.031, 0.9), (0.02, 1.1)], runs=5, idle_s=0.02, idle_w=0.25)
    with n6705(Board(timeline, noise_a=1e-3)) as meter:
        meter.arm(Capture(timeline.duration_s, 20.48e-6))
        meter.trigger()
        trace = meter.read()
    report = measure(trace, edge_windows(trace, 5))
    assert report.n == 5
    assert report.energy_j == pytest.approx(0.031 * 0.9 + 0.02 * 1.1, rel=1e-3)
    assert report.uncertainty.spread_j is not None
    assert 0.0 < report.uncertainty.spread_j < 1e-3 * report.energy_j
    assert report.idle is not None
    assert report.idle.mean_w == pytest.approx(0.25, rel=1e-3)


def test_an_instrument_at_the_edge_of_its_accuracy_stays_within_what_is_stated():
    known = KNOWN["step"]
    board = Board(known.timeline, gain=1.0003, offset_a=250e-6)  # of the N6781A's 3 A range
    with n6705(board) as meter:
        meter.arm(Capture(known.timeline.duration_s, 20.48e-6))
        meter.trigger()
        trace = meter.read()
    report = measure(trace, edge_windows(trace, 1))
    assert report.energy_j > known.energy_j * 1.0005
    assert abs(report.energy_j - known.energy_j) <= 1.2 * report.two_sigma_j


def test_the_time_base_is_what_the_instrument_made_of_it():
    with n6705(Board(SHORT)) as meter:
        meter.arm(Capture(0.03, 50e-6))
        meter.trigger()
        assert meter.read().dt_s == pytest.approx(40.96e-6)


def test_an_edge_may_trigger_and_is_time_zero():
    with n6705(Board(SHORT), edges=False) as meter:
        meter.arm(Capture(0.03, 20.48e-6, "edge", pre_trigger_s=0.005))
        trace = meter.read()
    assert trace.edges_s == (0.0,)
    assert trace.start_s == pytest.approx(-0.005, abs=20.48e-6)
    assert trace.power_w[0] == pytest.approx(0.3, rel=1e-6)
    assert measure(trace, edge_windows(trace, duration_s=0.02)).energy_j == pytest.approx(0.018, rel=2e-3)


FAULTS = {
    "garbage": "no usable reply to",
    "lost": r"lost samples, \d+ came, needed \d+",
    "no_trigger": "the trigger did not come",
    "over_range": "over-range|over-current",
    "overrun": "overrun",
    "silence": "no usable reply to",
    "torn": "no usable reply to|lost samples",
    "vanish": "no usable reply to",
}


@pytest.mark.parametrize("instrument", [n6705, truevolt])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error_and_the_next_capture_is_right(instrument, fault):
    capture = Capture(SHORT.duration_s, 20.48e-6)
    with instrument(Board(SHORT, faults=[fault]), margin_s=0.3, reply_s=0.5) as meter:
        meter.arm(capture)
        meter.trigger()
        began = time.monotonic()
        with pytest.raises(InstrumentError, match=FAULTS[fault]):
            meter.read()
        assert time.monotonic() - began < 3.0
        meter.arm(capture)
        meter.trigger()
        trace = meter.read()
    assert float(np.mean(trace.power_w)) == pytest.approx(SHORT.energy_j(0, 0.04) / 0.04, rel=1e-2)


@pytest.mark.parametrize("fault", ["lost", "no_trigger", "over_range", "overrun", "silence", "vanish"])
def test_a_fault_of_the_data_log_is_an_error(fault):
    messages = {"lost": "lost samples, .* no pairs"}
    margin_s = -53.5 if fault == "no_trigger" else 0.3  # not to wait for a minute
    with n6705(Board(SHORT, faults=[fault]), edges=False, margin_s=margin_s, reply_s=0.5) as meter:
        meter.arm(Capture(54.0, 204.8e-6))
        meter.trigger()
        with pytest.raises(InstrumentError, match=messages.get(fault, FAULTS[fault])):
            meter.read()


def test_a_current_beyond_the_chosen_range_is_an_error_without_the_instruments_help():
    board = Board(Timeline.steps([(0.01, 0.2), (0.01, 0.5), (0.01, 0.2)]))  # 151 mA in the 100 mA range
    with (
        ScpiServer(SimulatedN6705(board)) as server,
        N6705(ScpiSession(server.resource), N6705Wiring(max_current_a=0.1)) as meter,
    ):
        meter.arm(Capture(0.03, 20.48e-6))
        meter.trigger()
        with pytest.raises(
            InstrumentError, match=r"over-range, 48\d of 1465 samples beyond 0\.102 A, first at number 489"
        ):
            meter.read()


@pytest.mark.parametrize("instrument", [n6705, truevolt])
def test_what_cannot_work_is_refused_before_anything_is_sent(instrument):
    with instrument(Board(SHORT)) as meter:
        with pytest.raises(InstrumentError, match="its fastest is every"):
            meter.arm(Capture(0.1, 1e-6))
        with pytest.raises(InstrumentError, match="samples asked for, it takes"):
            meter.arm(Capture(1e6, 204.8e-6))
        with pytest.raises(InstrumentError, match="do not fit"):
            meter.arm(Capture(0.1, 1e-3, "edge", pre_trigger_s=0.2))
        with pytest.raises(InstrumentError, match="pre_trigger_s needs an edge"):
            meter.arm(Capture(0.1, 1e-3, pre_trigger_s=0.05))
        with pytest.raises(InstrumentError, match="triggered while it is not armed"):
            meter.trigger()
        with pytest.raises(InstrumentError, match="read before it was armed"):
            meter.read()


def test_the_data_log_refuses_what_only_the_scope_can_do():
    with n6705(Board(SHORT)) as meter, pytest.raises(InstrumentError, match="need the data log, which has no edges"):
        meter.arm(Capture(60.0, 204.8e-6))


def test_an_instrument_describes_itself():
    with n6705(Board(SHORT)) as meter:
        known = meter.description
    assert (known.name, known.kind, known.sees_edges, known.edge_trigger) == ("N6705C MY00000001", "n6705", True, True)
    assert known.range_for(0.05) == Range(0.1, 0.00025, 10e-6)
    with pytest.raises(InstrumentError, match="7 A asked for, its widest range ends at 3 A"):
        known.range_for(7.0)


def test_a_shunt_that_is_too_large_is_refused():
    with (
        ScpiServer(SimulatedTruevolt(Board(SHORT), 100.0)) as server,
        pytest.raises(InstrumentError, match=r"0\.5 A over 100 ohm are 50 V, its range ends at 10 V"),
    ):
        Truevolt(ScpiSession(server.resource), Shunt(100.0, 3.3))


def test_an_instrument_that_is_not_there_is_absent():
    with pytest.raises(HardwareAbsent, match=r"TCPIP::127\.0\.0\.1::9::SOCKET.*is the instrument on"):
        ScpiSession("TCPIP::127.0.0.1::9::SOCKET", reply_s=0.5)


def test_something_else_on_the_port_is_not_taken_for_an_instrument():
    class Other(ScpiDevice):
        identity = "hello"

    with ScpiServer(Other()) as server, pytest.raises(HardwareAbsent, match="calls itself 'hello', needed maker"):
        ScpiSession(server.resource)


def test_the_simulators_keep_an_error_queue():
    device = SimulatedN6705(Board(SHORT))
    assert device.execute("NONSENSE:COMMAND 1") == b""
    assert device.execute("syst:err?") == b'-113,"Undefined header"\n'
    assert device.execute("SYSTem:ERRor?") == b'+0,"No error"\n'


def test_the_simulators_understand_short_long_and_joined_commands():
    device = SimulatedN6705(Board(SHORT))
    assert device.execute(":SENSE:SWEEP:POINTS 77,(@1);sens:swe:poin? (@1);*OPC?") == b"77;1\n"


def test_a_block_is_what_ieee_488_says():
    assert block(np.array([1.0, -2.0]), ">f4") == b"#18" + bytes.fromhex("3f800000c0000000")


@pytest.mark.parametrize("instrument", ["n6705", "truevolt"])
def test_the_drivers_run_on_pyvisa_sim(instrument, tmp_path):
    """A session with our simulator is written down as a definition; pyvisa-sim then plays the instrument."""
    known = KNOWN["offset edges"]
    start_s, end_s = known.timeline.edges_s
    board = Board(known.timeline)
    device = SimulatedN6705(board) if instrument == "n6705" else SimulatedTruevolt(board, SHUNT_OHM)
    software = Capture(known.timeline.duration_s, 102.4e-6)
    on_edge = Capture(known.timeline.duration_s, 102.4e-6, "edge", pre_trigger_s=0.04)

    def energy_j(session):
        if instrument == "n6705":
            with N6705(session, N6705Wiring(edge_channel=2), data_format="ascii") as meter:
                meter.arm(software)
                meter.trigger()
                trace = meter.read()
            return measure(trace, edge_windows(trace, 1)).energy_j
        with Truevolt(session, Shunt(SHUNT_OHM, 3.3), data_format="ascii") as meter:
            meter.arm(on_edge)
            trace = meter.read()
        return measure(trace, edge_windows(trace, duration_s=end_s - start_s)).energy_j

    with ScpiServer(device) as server:
        recorded_j = energy_j(ScpiSession(server.resource))
    address = "TCPIP::meter::5025::SOCKET"
    definition = write_definition(tmp_path / "bench.yaml", {address: device})
    played_j = energy_j(ScpiSession(address, library=f"{definition}@sim"))
    assert played_j == recorded_j
    assert played_j == pytest.approx(known.energy_j, rel=1e-3)


@pytest.mark.slow
def test_hundred_rounds_with_faults_give_the_right_energy_or_an_error():
    random = np.random.default_rng(6)
    board, right, refused = Board(SHORT), 0, 0
    with n6705(board, margin_s=0.2, reply_s=0.3) as meter:
        for _ in range(ROUNDS):
            board.faults = [str(random.choice([*FAULTS]))] if random.random() < 0.4 else []
            try:
                meter.arm(Capture(SHORT.duration_s, 20.48e-6))
                meter.trigger()
                trace = meter.read()
                energy_j = measure(trace, edge_windows(trace, 1)).energy_j
            except InstrumentError:
                refused += 1
                continue
            assert energy_j == pytest.approx(0.02 * 0.9, rel=2e-3)
            right += 1
    assert right + refused == ROUNDS
    assert 0.2 * ROUNDS < refused < 0.6 * ROUNDS
