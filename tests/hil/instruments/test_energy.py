"""Energy, idle power and their uncertainty against values told by hand."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hil.instruments.energy import (
    EnergyReport,
    IdlePower,
    Uncertainty,
    Window,
    combined,
    edge_windows,
    energy_until_j,
    idle_power,
    measure,
    sample_noise_w,
)
from hil.instruments.simulated.timeline import Board, Segment, Timeline
from hil.instruments.trace import Accuracy, Trace, falling_edges
from pipeline.errors import InstrumentError

PERFECT = Accuracy(gain=0.0, offset_w=0.0, time_base=0.0, edge_s=0.0)


def trace_of(power_w, kind, dt_s=0.1, t0_s=0.0, edges_s=(), accuracy=PERFECT):
    return Trace("meter", t0_s, dt_s, np.asarray(power_w, dtype=np.float64), kind, accuracy, tuple(edges_s))


def slow_energy_j(trace, start_s, end_s, steps=40_000):
    """Riemann sum over the samples as each kind defines them."""
    width_s = (end_s - start_s) / steps
    times_s = start_s + width_s * (np.arange(steps) + 0.5)
    cells = (times_s - trace.t0_s) / trace.dt_s
    if trace.kind == "mean":
        return float(np.sum(trace.power_w[np.floor(cells).astype(int)]) * width_s)
    return float(np.sum(np.interp(cells, np.arange(len(trace.power_w)), trace.power_w)) * width_s)


@pytest.mark.parametrize("kind", ["mean", "point"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    power_w=st.lists(st.floats(0, 2), min_size=4, max_size=12),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    t0_s=st.floats(-1, 1),
)
def test_the_integral_equals_a_slow_sum_for_any_edges(kind, power_w, ends, t0_s):
    trace = trace_of(power_w, kind, t0_s=t0_s)
    start_s, end_s = (trace.start_s + part * (trace.end_s - trace.start_s) for part in sorted(ends))
    fast = energy_until_j(trace, np.array([start_s, end_s]))
    assert fast[1] - fast[0] == pytest.approx(slow_energy_j(trace, start_s, end_s), abs=1e-4)


def test_cells_are_cut_at_the_edges():
    # Half of the first cell, all of the second, a quarter of the third.
    report = measure(trace_of([1, 3, 5], "mean"), [Window(0.05, 0.225)])
    assert report.energy_j == pytest.approx(0.05 * 1 + 0.1 * 3 + 0.025 * 5)


def test_a_ramp_in_point_samples_is_exact_between_the_samples():
    # 2 W/s from 1 W on: energy = t + t^2
    trace = trace_of(1 + 2 * 0.1 * np.arange(20), "point")
    assert measure(trace, [Window(0.333, 1.777)]).energy_j == pytest.approx(1.777 + 1.777**2 - 0.333 - 0.333**2)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    segments=st.lists(
        st.tuples(st.floats(0.01, 1), st.floats(0, 2), st.floats(0, 2)).map(lambda s: Segment(*s)),
        min_size=1,
        max_size=6,
    ),
    parts=st.tuples(st.floats(-0.5, 1.5), st.floats(-0.5, 1.5)),
)
def test_a_timeline_knows_its_energy(segments, parts):
    timeline = Timeline(tuple(segments))
    start_s, end_s = (part * timeline.duration_s for part in sorted(parts))
    times_s = np.linspace(start_s, end_s, 40_001)
    middle_s = (times_s[1:] + times_s[:-1]) / 2
    slow = float(np.sum(timeline.power_w(middle_s)) * (times_s[1] - times_s[0]))
    assert timeline.energy_j(start_s, end_s) == pytest.approx(slow, abs=1e-3 + 1e-4 * (end_s - start_s))


def test_runs_are_separated_by_idle_time_and_edges():
    timeline = Timeline.of_runs([(0.2, 1.0), (0.1, 2.0)], runs=2, idle_s=0.5, idle_w=0.1)
    assert timeline.edges_s == pytest.approx((0.5, 0.8, 1.3, 1.6))
    assert timeline.duration_s == pytest.approx(2.1)
    assert timeline.energy_j(0.5, 0.8) == pytest.approx(0.2 * 1.0 + 0.1 * 2.0)
    assert timeline.energy_j(-1.0, 0.0) == pytest.approx(0.1)
    assert timeline.energy_j(2.1, 3.1) == pytest.approx(0.1)


def test_idle_power_is_told_apart():
    power_w = [0.2] * 20 + [1.0] * 10 + [0.4] * 20
    report = measure(trace_of(power_w, "mean"), [Window(2.0, 3.0)])
    assert report.idle is not None
    assert report.idle.mean_w == pytest.approx(0.3)
    assert report.idle.duration_s == pytest.approx(3.6), "two samples beside each window are no idle time"
    assert report.energy_j == pytest.approx(1.0)
    assert report.above_idle_j == pytest.approx(1.0 - 0.3)


def test_without_idle_time_there_is_no_idle_power():
    report = measure(trace_of([1.0] * 20, "mean"), [Window(0.0, 2.0)])
    assert report.idle is None
    assert report.above_idle_j is None


def test_the_guard_keeps_the_flanks_out_of_the_idle_power():
    trace = trace_of([0.2] * 20 + [0.9] + [1.0] * 10 + [0.9] + [0.2] * 20, "mean")
    guarded = idle_power(trace, [Window(2.1, 3.1)], guard_s=0.1)
    assert guarded is not None
    assert guarded.mean_w == pytest.approx(0.2)


def test_noise_is_seen_through_steps_and_ramps():
    random = np.random.default_rng(1)
    power_w = np.concatenate([np.full(5000, 0.2), np.linspace(1.0, 2.0, 5000), np.full(5000, 0.7)])
    assert sample_noise_w(trace_of(power_w + random.normal(0, 0.01, 15000), "mean")) == pytest.approx(0.01, rel=0.05)
    assert sample_noise_w(trace_of(power_w, "mean")) < 1e-4


def test_each_component_of_the_uncertainty_is_what_the_header_says():
    accuracy = Accuracy(gain=0.003, offset_w=0.002, time_base=0.001, edge_s=0.01)
    power_w = np.full(60, 0.5)
    power_w[20:40] = 1.5
    uncertainty = measure(trace_of(power_w, "mean", accuracy=accuracy), [Window(2.0, 4.0)]).uncertainty
    energy_j = 2.0 * 1.5
    assert uncertainty.spread_j is None
    assert uncertainty.noise_j == 0.0
    per_edge = (1.0 * 0.1) ** 2 / 12 + (1.5 * 0.01) ** 2 / 3
    assert uncertainty.sampling_j == pytest.approx(2 * sqrt(2 * per_edge))
    assert uncertainty.time_base_j == pytest.approx(2 * 0.001 * energy_j / sqrt(3))
    assert uncertainty.range_j == pytest.approx(2 * sqrt((0.003 * energy_j) ** 2 + (0.002 * 2.0) ** 2) / sqrt(3))
    parts = (uncertainty.sampling_j, uncertainty.time_base_j, uncertainty.range_j)
    assert uncertainty.total_j == pytest.approx(sqrt(sum(part**2 for part in parts)))


def test_the_spread_of_windows_is_that_of_their_mean():
    power_w = [0.0, 1.0, 0.0, 1.2, 0.0, 1.4, 0.0]
    windows = [Window(0.1, 0.2), Window(0.3, 0.4), Window(0.5, 0.6)]
    report = measure(trace_of(power_w, "mean"), windows)
    assert report.n == 3
    assert report.energies_j == pytest.approx((0.10, 0.12, 0.14))
    assert report.energy_j == pytest.approx(0.12)
    assert report.uncertainty.spread_j == pytest.approx(2 * 0.02 / sqrt(3))


def test_random_components_shrink_with_windows_and_runs():
    noisy = np.full(60, 1.0) + np.random.default_rng(3).normal(0, 0.1, 60)
    trace = trace_of(noisy, "mean", accuracy=Accuracy(gain=0.0, offset_w=0.3, time_base=0.0, edge_s=0.01))
    windows = [Window(1.0, 2.0), Window(3.0, 4.44)]
    report = measure(trace, windows, runs_per_window=4)
    noise_w = sample_noise_w(trace)
    assert report.uncertainty.noise_j == pytest.approx(2 * noise_w * sqrt(0.1 * (1.0 + 1.44)) / 4 / 2)
    assert report.uncertainty.range_j == pytest.approx(2 * 0.3 * (1.0 + 1.44) / 2 / 4 / sqrt(3))
    variance = 0.0
    for cell in (10, 20, 30, 44):
        around = noisy[cell - 1 : cell + 3]
        variance += ((around.max() - around.min()) * 0.1) ** 2 / 12 + (around.max() * 0.01) ** 2 / 3
    assert report.uncertainty.sampling_j == pytest.approx(2 * sqrt(variance) / 2 / 4)
    assert report.idle is not None
    idle_w = hypot(noise_w / sqrt(report.idle.duration_s / 0.1), 0.3 / sqrt(3))
    assert report.idle.two_sigma_w == pytest.approx(2 * idle_w)


def test_the_larger_of_spread_and_noise_counts():
    assert Uncertainty(5.0, 1.0, 2.0, 3.0, 4.0).total_j == pytest.approx(sqrt(25 + 9 + 16))
    assert Uncertainty(2.0, 1.0, 2.0, 3.0, 4.0).total_j == pytest.approx(sqrt(5 + 9 + 16))
    assert Uncertainty(None, 1.0, 2.0, 3.0, 4.0).total_j == pytest.approx(sqrt(5 + 9 + 16))


def test_captures_are_combined_by_their_windows():
    parts = (
        EnergyReport(2, 1.0, (0.9, 1.1), 0.5, Uncertainty(0.1, 0.3, 0.6, 0.3, 0.9), IdlePower(0.2, 0.01, 3.0)),
        EnergyReport(1, 1.6, (1.6,), 0.8, Uncertainty(None, 0.8, 0.5, 0.6, 0.3), IdlePower(0.4, 0.03, 1.0)),
    )
    whole = combined(parts)
    assert (whole.n, whole.energies_j) == (3, (0.9, 1.1, 1.6))
    assert whole.energy_j == pytest.approx(1.2)
    assert whole.duration_s == pytest.approx(0.6)
    assert whole.uncertainty.spread_j == pytest.approx(2 * sqrt((0.3**2 + 0.1**2 + 0.4**2) / 2) / sqrt(3))
    assert whole.uncertainty.noise_j == pytest.approx(hypot(0.6, 0.8) / 3)
    assert whole.uncertainty.sampling_j == pytest.approx(hypot(1.2, 0.5) / 3)
    assert (whole.uncertainty.time_base_j, whole.uncertainty.range_j) == pytest.approx((0.4, 0.7))
    assert whole.idle == IdlePower(pytest.approx(0.25), 0.03, 4.0)
    alone = combined([replace(parts[1], idle=None)])
    assert (alone.idle, alone.uncertainty.spread_j) == (None, None)
    assert combined([replace(parts[0], idle=None), parts[1]]).idle == parts[1].idle


def test_ten_samples_are_the_least_idle_time():
    # Two samples beside the window do not count.
    for samples, is_idle in ((22, True), (21, False)):
        report = measure(trace_of([1.0] * samples, "mean"), [Window(0.0, 1.0)])
        assert (report.idle is not None) == is_idle


def test_a_window_of_many_runs_is_divided_by_them():
    report = measure(trace_of([1.0] * 40, "mean"), [Window(1.0, 3.0)], runs_per_window=8)
    assert report.energy_j == pytest.approx(0.25)
    assert report.duration_s == pytest.approx(0.25)


def test_two_sigma_covers_the_truth_about_as_often_as_it_should():
    """200 noisy captures with edges anywhere: 95 % would be 190."""
    random, covered = np.random.default_rng(7), 0
    for seed in range(200):
        start_s = 0.02 + random.uniform(0, 1e-3)
        timeline = Timeline.steps([(start_s, 0.3), (0.05, 0.9), (0.05, 0.3)], (start_s, start_s + 0.05))
        board = Board(timeline, voltage_v=1.0, noise_a=0.05, seed=seed)
        trace = trace_of(board.mean_currents_a(0.0, 1e-4, 1100), "mean", 1e-4, edges_s=timeline.edges_s)
        report = measure(trace, edge_windows(trace, 1))
        covered += abs(report.energy_j - 0.05 * 0.9) <= report.two_sigma_j
    assert 180 <= covered <= 200


def test_edges_are_paired():
    trace = trace_of([1.0] * 20, "mean", edges_s=(0.1, 0.4, 0.9, 1.2))
    assert edge_windows(trace, 2) == (Window(0.1, 0.4), Window(0.9, 1.2))


@pytest.mark.parametrize(
    ("edges_s", "expected"), [((), None), ((0.1,), None), ((0.1, 0.2, 0.3), None), ((0.1, 0.2), 2)]
)
def test_missing_edges_are_an_error(edges_s, expected):
    with pytest.raises(InstrumentError, match=f"{len(edges_s)} edges of the timestamp pin, needed"):
        edge_windows(trace_of([1.0] * 20, "mean", edges_s=edges_s), expected)


def test_one_edge_and_the_devices_own_time_make_a_window():
    trace = trace_of([1.0] * 20, "mean", t0_s=-0.5, edges_s=(0.0,))
    assert edge_windows(trace, duration_s=0.7) == (Window(0.0, 0.7),)
    with pytest.raises(InstrumentError, match="2 edges, needed 1 beside a duration"):
        edge_windows(trace_of([1.0] * 20, "mean", edges_s=(0.1, 0.2)), duration_s=0.7)


def test_an_edge_outside_the_trace_is_an_error():
    with pytest.raises(InstrumentError, match=r"an edge at 2\.100000 s lies outside the trace .*capture for longer"):
        measure(trace_of([1.0] * 20, "mean"), [Window(1.0, 2.1)])


def test_the_last_point_sample_ends_the_trace():
    assert trace_of([1.0] * 20, "point").end_s == pytest.approx(1.9)
    assert trace_of([1.0] * 20, "mean").end_s == pytest.approx(2.0)


@pytest.mark.parametrize("windows", [[], [Window(1.0, 1.0)]])
def test_no_window_is_an_error(windows):
    with pytest.raises(InstrumentError, match="needed at least one, each with a duration"):
        measure(trace_of([1.0] * 20, "mean"), windows)


def test_samples_that_are_no_numbers_make_no_trace():
    with pytest.raises(InstrumentError, match="meter: 2 of 4 samples are no numbers"):
        trace_of([1.0, np.nan, np.inf, 1.0], "mean")


def test_an_empty_trace_and_unordered_edges_are_refused():
    with pytest.raises(InstrumentError, match="0 samples every 0.1 s, needed at least 2"):
        trace_of([], "mean")
    with pytest.raises(InstrumentError, match="edges out of order"):
        trace_of([1.0] * 20, "mean", edges_s=(0.4, 0.1))


def test_arrays_of_different_lengths_make_no_trace():
    with pytest.raises(InstrumentError, match="3 samples beside 4 of power; some were lost"):
        Trace("meter", 0.0, 0.1, np.ones(4), "mean", PERFECT, current_a=np.ones(3))


def test_falling_edges_are_interpolated():
    pin_v = np.array([3.0, 3.0, 0.0, 0.0, 3.0, 3.0, 1.0, 0.0])
    assert falling_edges(10.0, 0.1, pin_v, 1.5) == pytest.approx((10.15, 10.575))
    assert falling_edges(0.0, 0.1, np.zeros(5), 1.5) == ()
