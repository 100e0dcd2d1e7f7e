"""Calibration, blind: parameters that a hidden draw has moved are recovered, networks never seen are predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boards import load_board
from stages.tools.modelling.calibration import PARAMETERS, Calibrated, Subjects, build_subjects, calibrate
from stages.tools.modelling.calibration import described_values as described
from stages.tools.modelling.loops import loops

BOARD = "nucleo_h743zi2"
NOISE = 0.003  # share: what a second run of the same code differs by


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    return build_subjects(load_board(BOARD), tmp_path_factory.mktemp("calibration"))


def blind(subjects: Subjects, seed: int) -> tuple[np.ndarray, Calibrated]:
    """A device whose parameters were moved by up to half, with noise on all that it takes."""
    rng = np.random.default_rng(seed)
    truth = described(subjects.described) * rng.uniform(0.5, 1.5, len(PARAMETERS))
    taken = subjects.predict(subjects.fit)(truth)
    taken = taken * (1 + NOISE * rng.standard_normal(len(taken)))
    held_out = subjects.predict(subjects.held_out, whole=True)(truth)
    return truth, calibrate(subjects, taken, held_out)


def test_there_are_about_sixty_loops_with_names_of_their_own() -> None:
    assert 55 <= len(loops()) <= 65
    assert len({loop.name for loop in loops()}) == len(loops())


@pytest.mark.slow
def test_a_hidden_draw_is_recovered_and_other_networks_are_predicted(subjects: Subjects) -> None:
    before = described(subjects.described)
    truth, found = blind(subjects, seed=1)
    assert np.median(np.abs(found.errors)) <= 0.03 and np.max(np.abs(found.errors)) <= 0.08
    assert np.all(np.abs(found.errors) <= found.share + 0.01)
    covered = np.abs(found.fit.values - truth) <= found.fit.uncertainty
    assert covered.mean() >= 0.7
    assert np.abs(found.fit.values - truth).sum() < 0.5 * np.abs(before - truth).sum()


def test_described_parameters_are_found_where_nothing_was_moved(subjects: Subjects, tmp_path: Path) -> None:
    now = described(subjects.described)
    whole = subjects.predict(subjects.held_out, whole=True)(now)
    found = calibrate(subjects, subjects.predict(subjects.fit)(now), whole)
    assert found.fit.residual < 1e-3
    assert found.errors == pytest.approx(0, abs=1e-3)
