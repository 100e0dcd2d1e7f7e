"""The virtual bench's instrument, from a timeline to joules."""

from __future__ import annotations

import pytest

from hil.instruments.energy import EnergyReport, edge_windows, measure
from hil.instruments.instrument import Capture
from hil.instruments.simulated.timeline import Board, Timeline
from hil.instruments.simulated.twin_supply import virtual_meter
from pipeline.errors import InstrumentError

OPS = [(0.011, 0.82), (0.0043, 0.95), (0.0212, 0.71), (0.0007, 0.5)]  # of one inference
OPS_J = 0.011 * 0.82 + 0.0043 * 0.95 + 0.0212 * 0.71 + 0.0007 * 0.5


def measured_runs(timeline: Timeline, runs_per_window: int = 1, **imperfections) -> EnergyReport:
    with virtual_meter(Board(timeline, **imperfections)) as meter:
        meter.arm(Capture(timeline.duration_s, meter.interval_for(timeline.duration_s)))
        meter.trigger()
        trace = meter.read()
    return measure(trace, edge_windows(trace, len(timeline.edges_s) // 2), runs_per_window=runs_per_window)


def test_the_energy_of_an_inference_is_that_of_its_ops():
    report = measured_runs(
        Timeline.of_runs(OPS * 10, runs=5, idle_s=0.1, idle_w=0.25), noise_a=1e-3, runs_per_window=10
    )
    assert report.n == 5
    assert report.energy_j == pytest.approx(OPS_J, rel=1e-3)
    assert abs(report.energy_j - OPS_J) <= report.two_sigma_j
    assert report.duration_s == pytest.approx(0.0372, rel=1e-3)
    assert report.idle is not None
    assert report.idle.mean_w == pytest.approx(0.25, rel=1e-3)


def test_long_timelines_are_sampled_more_slowly():
    report = measured_runs(Timeline.of_runs([(5.0, 0.9)], runs=2, idle_s=0.5, idle_w=0.25))
    assert report.energy_j == pytest.approx(4.5, rel=1e-4)
    assert report.idle is not None
    assert report.idle.duration_s == pytest.approx(1.5, rel=1e-2)


def test_the_same_seed_gives_the_same_joules():
    timeline = Timeline.of_runs(OPS, runs=3, idle_s=0.02, idle_w=0.25)
    assert measured_runs(timeline, noise_a=2e-3, seed=4) == measured_runs(timeline, noise_a=2e-3, seed=4)
    assert measured_runs(timeline, noise_a=2e-3, seed=4) != measured_runs(timeline, noise_a=2e-3, seed=5)


def test_a_fault_of_the_instrument_comes_through():
    with pytest.raises(InstrumentError, match="lost samples"):
        measured_runs(Timeline.of_runs(OPS, runs=1, idle_s=0.1, idle_w=0.2), faults=["lost"])
