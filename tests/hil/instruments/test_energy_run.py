"""Windows cut into captures, captures repeated, and what is kept of them; and the supply that follows a twin."""

from __future__ import annotations

import numpy as np
import pytest

from hil.instruments.energy import Window
from hil.instruments.energy_run import (
    ATTEMPTS,
    EnergySeen,
    WindowPlan,
    around_windows,
    plan_windows,
    record_windows,
)
from hil.instruments.instrument import Capture, Description, Instrument, Range
from hil.instruments.simulated.timeline import Board, Segment, Timeline
from hil.instruments.simulated.twin_supply import TwinPower, TwinSupply
from hil.instruments.trace import Accuracy, Trace
from pipeline.errors import InstrumentError

DT_S = 1 / 1024
PERFECT = Accuracy(0.0, 0.0, 0.0, 0.0)
FIRST_S, EVERY_S, WINDOW_S = 0.25, 1.5, 1.0  # of the windows in a capture
PLAN = WindowPlan(windows=7, inferences=4, latency_s=0.25, most_in_capture=3)


class Meter(Instrument):
    """1 W inside the windows, 0.2 W beside them."""

    def __init__(self, *, sees_edges: bool = True, edge_trigger: bool = False, failures: int = 0) -> None:
        super().__init__()
        self.description = Description("meter", "stub", (Range(1, 0, 0),), DT_S, 10**6, 0.0, sees_edges, edge_trigger)
        self.captures: list[Capture] = []
        self.fired: list[int] = []
        self.triggers, self.failures = 0, failures

    def _arm(self, capture: Capture) -> None:
        self.captures.append(capture)

    def _trigger(self) -> None:
        self.triggers += 1

    def _read(self, capture: Capture) -> Trace:
        if self.failures:
            self.failures -= 1
            raise InstrumentError("meter: lost samples")
        starts = [FIRST_S + EVERY_S * index for index in range(self.fired[-1])]
        if not self.description.sees_edges:
            starts = [0.0]
        times_s = DT_S * np.arange(capture.samples) - capture.pre_trigger_s
        power_w = np.full(capture.samples, 0.2)
        for start in starts:
            power_w[(times_s >= start) & (times_s < start + WINDOW_S)] = 1.0
        edges = tuple(edge for start in starts for edge in (start, start + WINDOW_S))
        edges = edges if self.description.sees_edges else (0.0,)
        return Trace("meter", -capture.pre_trigger_s, DT_S, power_w, "mean", PERFECT, edges)

    def _close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("latency_s", "sees_edges", "plan"),
    [
        (0.25, True, WindowPlan(7, inferences=4, latency_s=0.25, most_in_capture=3)),  # 1000 samples are 0.98 s
        (0.02, True, WindowPlan(7, inferences=49, latency_s=0.02, most_in_capture=3)),
        (2.0, True, WindowPlan(7, inferences=1, latency_s=2.0, most_in_capture=1)),
        (30.0, True, WindowPlan(7, inferences=1, latency_s=30.0, most_in_capture=1)),
        (0.25, False, WindowPlan(7, inferences=4, latency_s=0.25, most_in_capture=1)),
    ],
)
def test_a_window_is_long_against_the_samples_and_a_capture_some_seconds(latency_s, sees_edges, plan):
    assert plan_windows(Meter(sees_edges=sees_edges, edge_trigger=True), latency_s, 7) == plan


def test_a_meter_that_cannot_see_the_pin_is_refused():
    with pytest.raises(InstrumentError, match="meter: sees no edge of the timestamp pin; wire it, see edge_channel"):
        plan_windows(Meter(sees_edges=False), 0.25, 7)


@pytest.mark.parametrize(("failures", "fired"), [(0, [3, 3, 1]), (ATTEMPTS - 1, [3] * ATTEMPTS + [3, 1])])
def test_captures_together_hold_every_window_and_one_that_failed_is_repeated(failures, fired):
    meter = Meter(failures=failures)
    seen = record_windows(meter, PLAN, meter.fired.append)
    assert meter.fired == fired
    assert meter.triggers == len(fired)
    assert [capture.duration_s for capture in meter.captures] == pytest.approx([0.1 + 1.5 * each for each in fired])
    assert (seen.instrument, seen.inferences, seen.retries) == ("meter", 4, failures)
    assert (seen.report.n, len(seen.windows)) == (7, 7)
    assert seen.report.energy_j == pytest.approx(0.25)
    assert seen.report.idle is not None
    assert seen.report.idle.mean_w == pytest.approx(0.2)


def test_a_capture_that_stays_wrong_is_raised():
    meter = Meter(failures=ATTEMPTS)
    with pytest.raises(InstrumentError, match="lost samples"):
        record_windows(meter, PLAN, meter.fired.append)
    assert meter.fired == [3] * ATTEMPTS


def test_the_edge_that_triggers_begins_the_one_window_of_a_capture():
    meter = Meter(sees_edges=False, edge_trigger=True)
    seen = record_windows(meter, WindowPlan(2, 4, 0.25, most_in_capture=1), meter.fired.append)
    assert (meter.fired, meter.triggers) == ([1, 1], 0)
    assert {(each.trigger, each.pre_trigger_s) for each in meter.captures} == {("edge", 0.05)}
    assert seen.report.energy_j == pytest.approx(0.25, rel=1e-3)  # an edge within a sample
    assert [window for _, window in seen.windows] == [Window(0.0, 1.0)] * 2


def test_traces_are_kept_around_their_windows_all_of_one_length():
    ramp = Trace("meter", 0.0, DT_S, np.arange(1100.0), "mean", PERFECT)
    late = Trace("meter", 0.5, DT_S, np.arange(1100.0), "mean", PERFECT)
    windows = ((ramp, Window(0.01, 1.01)), (late, Window(0.5625, 1.5625)))
    report = record_windows(meter := Meter(), WindowPlan(1, 4, 0.25, 1), meter.fired.append).report
    kept = around_windows(EnergySeen("meter", 4, report, windows, 0))
    assert kept["power_w"].dtype == np.float32
    np.testing.assert_array_equal(kept["power_w"], [np.arange(0, 1057), np.arange(43, 1100)])
    np.testing.assert_array_equal(kept["dt_s"], [DT_S, DT_S])
    np.testing.assert_array_equal(kept["t0_s"], [0.0, 0.5 + 43 * DT_S])
    np.testing.assert_array_equal(kept["edges_s"], [[0.01, 1.01], [0.5625, 1.5625]])
    alone = around_windows(EnergySeen("meter", 4, report, windows[:1], 0))
    assert alone["power_w"].shape == (1, 1065), "20 ms on either side"


def test_the_supply_draws_what_the_twin_executed():
    board = Board(Timeline.steps([(1.0, 0.0)]), seed=3)
    power = TwinPower(clock_hz=1000, active_w=0.8, cycles_per_instruction=(2.0, 0.0, 0.5))
    TwinSupply(power, board).executed((100, 7, 40), times=2, windows=2)
    run = [Segment(0.2, 0.8, 0.8), Segment(0.02, 0.8, 0.8)] * 2
    idle = Segment(0.1, 0.4, 0.4)
    assert board.timeline.segments == (idle, *run, idle, *run, idle)
    assert board.timeline.edges_s == pytest.approx((0.1, 0.54, 0.64, 1.08))
    assert board.seed == 4
