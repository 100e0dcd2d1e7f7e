"""Calibration, blind: parameters that a hidden draw has moved are recovered, networks never seen are predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from boards import CALIBRATION, CalibratedPower, calibrated, load_board
from hil.virtual.model_error import NETWORK, model_error
from hil.virtual.power_model import RATES, energy_j, mean_power_w
from hil.virtual.profiler import LineTraffic, OpProfile
from stages.measure.modelled import memory_model
from stages.tools.modelling.calibration import PARAMETERS, Calibrated, Subjects, build_subjects, calibrate, priced
from stages.tools.modelling.calibration import described_values as described
from stages.tools.modelling.command import _record
from stages.tools.modelling.loops import loops
from stages.tools.modelling.power import KINDS, Rates, fit_power, power_subjects, simulated

BOARD = "nucleo_h743zi2"
NOISE = 0.003  # share: what a second run of the same code differs by
WATTS = (0.55, 0.25, 0.40)  # about which hidden rates are drawn


@dataclass(frozen=True)
class Blind:
    """A hidden draw, and what calibration makes of it."""

    truth: np.ndarray
    found: Calibrated


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    return build_subjects(load_board(BOARD), tmp_path_factory.mktemp("calibration"))


def blind(subjects: Subjects, seed: int) -> Blind:
    """A device whose parameters were moved by up to half, with noise on all that it takes."""
    rng = np.random.default_rng(seed)
    truth = described(subjects.described) * rng.uniform(0.5, 1.5, len(PARAMETERS))
    taken = subjects.predict(subjects.fit)(truth)
    taken = taken * (1 + NOISE * rng.standard_normal(len(taken)))
    held_out = [one.cycles(priced(subjects.described, truth)) for one in subjects.held_out]
    return Blind(truth, calibrate(subjects, taken, held_out))


def blind_power(subjects: Subjects, case: Blind, seed: int) -> tuple[Rates, CalibratedPower]:
    """The same device draws other watts, before a simulated instrument with noise and edges of its own."""
    rates = Rates(*(np.array(WATTS) * np.random.default_rng(seed).uniform(0.5, 1.5, len(RATES))))
    clock_hz = load_board(BOARD).clock_hz
    measure = simulated(rates, priced(subjects.described, case.truth), clock_hz)
    return rates, fit_power(
        power_subjects(subjects), priced(subjects.described, case.found.fit.values), clock_hz, measure, "mcu"
    )


def test_there_are_about_sixty_loops_with_names_of_their_own() -> None:
    assert 55 <= len(loops()) <= 65
    assert len({loop.name for loop in loops()}) == len(loops())
    for names in KINDS.values():
        assert sum(loop.name.startswith(names) for loop in loops()) >= 3


@pytest.mark.slow
def test_a_hidden_draw_is_recovered_and_other_networks_are_predicted(subjects: Subjects, tmp_path: Path) -> None:
    before = described(subjects.described)
    case = blind(subjects, seed=1)
    truth, found = case.truth, case.found
    assert np.median(np.abs(found.errors)) <= 0.03 and np.max(np.abs(found.errors)) <= 0.08
    assert np.all(np.abs(found.errors) <= found.share + 0.01)
    covered = np.abs(found.fit.values - truth) <= found.fit.uncertainty
    assert covered.mean() >= 0.7
    assert np.abs(found.fit.values - truth).sum() < 0.5 * np.abs(before - truth).sum()

    rates, power = blind_power(subjects, case, seed=1)
    assert power.networks.n == 3 and power.networks.most <= 0.05
    assert power.core_w == pytest.approx(rates.core_w, rel=0.1)
    assert set(power.kinds_w) == set(KINDS)

    names = [one.name for one in subjects.held_out]
    (tmp_path / CALIBRATION).write_text(yaml.safe_dump(_record(found, names, "hardware", "", power)))
    board = calibrated(load_board(BOARD), tmp_path / CALIBRATION)
    assert board.calibration is not None and board.calibration.power is not None
    assert {"dense", "depthwise", "memory-bound", NETWORK} <= set(board.calibration.areas)
    assert set(board.calibration.kernels) == set(found.kernels)
    held_out = subjects.held_out[-1]
    model = memory_model(board, held_out.decoder._program)
    wanted = held_out.cycles(priced(subjects.described, truth)).sum()
    assert held_out.cycles(model).sum() == pytest.approx(wanted, rel=0.08), "the twin now says what the device took"
    error = model_error(BOARD, board.cache, NETWORK, 0.1, board.calibration)
    assert "calibrated on hardware; 3 networks that were not in the fit" in error.text
    ops = held_out.profiles(model)
    assert energy_j(ops, board.calibration.power, 1) == pytest.approx(
        energy_j(held_out.profiles(priced(subjects.described, truth)), rates, 1), rel=0.1
    ), "and its energy"


def test_described_parameters_are_found_where_nothing_was_moved(subjects: Subjects) -> None:
    now = described(subjects.described)
    held_out = [one.cycles(subjects.described) for one in subjects.held_out]
    found = calibrate(subjects, subjects.predict(subjects.fit)(now), held_out)
    assert found.fit.residual < 1e-3
    assert found.errors == pytest.approx(0, abs=1e-3)
    assert all(0.98 < one.low <= 1 <= one.high < 1.02 for one in found.by_kernel().values())


def test_an_op_takes_what_its_cycles_of_each_kind_take() -> None:
    op = OpProfile(0, 900, 1000, 1500, LineTraffic(), 400)
    rates = Rates(0.5, 0.2, 0.3)
    assert energy_j([op], rates, 100) == pytest.approx((0.5 * 1000 + 0.2 * 400 + 0.3 * 500) / 100)
    assert mean_power_w([op, op], rates, 9.0) == pytest.approx((0.5 * 1000 + 0.2 * 400 + 0.3 * 500) / 1500)
    assert mean_power_w([op], None, 0.9) == 0.9 and mean_power_w([], rates, 0.9) == 0.9
