"""Twenty hidden draws: `python -m tests.benchmarks.firmware.calibration_blind` prints how well they are recovered."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from boards import load_board
from stages.tools.modelling.calibration import build_subjects
from tests.stages.tools.test_calibration import BOARD, blind

DRAWS = 20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subjects = build_subjects(load_board(BOARD), Path(folder))
        errors, covered, parameters = [], [], []
        for seed in range(100, 100 + DRAWS):
            truth, found = blind(subjects, seed)
            errors += list(np.abs(found.errors))
            covered += list(np.abs(found.errors) <= found.share)
            parameters += list(np.abs(found.fit.values - truth) <= found.fit.uncertainty)
            sys.stdout.write(f"draw {seed}: errors {[f'{100 * e:+.2f} %' for e in found.errors]}\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"networks not in the fit, {DRAWS} draws: median {100 * np.median(errors):.2f} %, "
        f"worst {100 * max(errors):.2f} %; "
        f"stated uncertainty covers {100 * np.mean(covered):.0f} % of networks, {100 * np.mean(parameters):.0f} % of "
        "parameters\n"
    )


if __name__ == "__main__":
    main()
