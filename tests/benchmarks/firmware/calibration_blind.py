"""Twenty hidden draws: `python -m tests.benchmarks.firmware.calibration_blind` prints how well they are recovered."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from boards import load_board
from hil.virtual.power_model import RATES
from stages.tools.modelling.calibration import build_subjects
from tests.stages.tools.test_calibration import BOARD, blind, blind_power

DRAWS = 20


def main(draws: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subjects = build_subjects(load_board(BOARD), Path(folder))
        errors, covered, parameters, kernels, energies, rates = [], [], [], [], [], []
        for seed in range(100, 100 + draws):
            case = blind(subjects, seed)
            truth, found = case.truth, case.found
            kernels += list(np.abs(found.ops.errors))
            watts, power = blind_power(subjects, case, seed)
            energies.append(power.networks.most)
            rates += [abs(getattr(power, name) - getattr(watts, name)) <= power.uncertainty[name] for name in RATES]
            errors += list(np.abs(found.errors))
            covered += list(np.abs(found.errors) <= found.share)
            parameters += list(np.abs(found.fit.values - truth) <= found.fit.uncertainty)
            sys.stdout.write(
                f"draw {seed}: errors {[f'{100 * e:+.2f} %' for e in found.errors]}, worst operator "
                f"{100 * np.max(np.abs(found.ops.errors)):.2f} %, energy {100 * power.networks.most:.2f} %, rates "
                f"{[f'{getattr(power, name) / getattr(watts, name):.3f}' for name in RATES]} of those drawn\n"
            )
            sys.stdout.flush()
    sys.stdout.write(
        f"networks not in the fit, {draws} draws: median {100 * np.median(errors):.2f} %, "
        f"worst {100 * max(errors):.2f} %; "
        f"stated uncertainty covers {100 * np.mean(covered):.0f} % of networks, {100 * np.mean(parameters):.0f} % of "
        "parameters\n"
        f"operators of these networks: median {100 * np.median(kernels):.2f} %, worst {100 * max(kernels):.2f} %\n"
        f"their energy, rates moved by up to 50 %: median {100 * np.median(energies):.2f} %, worst "
        f"{100 * max(energies):.2f} % stated or found; uncertainty covers {100 * np.mean(rates):.0f} % of rates\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS)
