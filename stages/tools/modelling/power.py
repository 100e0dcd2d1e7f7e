"""Energies of loops and networks, by an instrument -> the rates of the power model, and how well they predict others.

Loops of one kind run in an image of their own, so that each kind has a power; what an inference of such an image takes
is linear in the rates (`hil/virtual/power_model.py`). Without a board a simulated instrument stands in, behind the real
driver, which proves the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boards import Board, CalibratedPower, PowerPoint
from hil.instruments.energy_run import plan_windows, record_windows
from hil.instruments.instrument import Instrument
from hil.instruments.simulated.twin_supply import TwinPower, twin_meter
from hil.virtual.power_model import RATES, PowerRates, cycle_kinds, mean_power_w
from hil.virtual.profiler import MemoryModel
from stages.firmware.build.image import Images, build_images
from stages.measure.energy import record_on_board
from stages.tools.bringup.device import AttachedDevice
from stages.tools.bringup.trial_network import trial_inputs
from stages.tools.modelling.calibration import OPTIMISED, HeldOut, Subject, Subjects, write_network
from stages.tools.modelling.loop_source import write_loops
from stages.tools.modelling.loops import loops

KINDS = {  # beginnings of the names of loops
    "issue": ("issue_alu", "issue_shift", "issue_field", "wait_saturated"),
    "multiply": ("issue_mac_mac", "issue_mac_alu", "wait_product_to"),
    "load_and_store": ("issue_load", "issue_store", "load_dtcm"),
    "branches": ("branch_", "return_"),
    "flash_lines": ("load_flash",),
    "ram_lines": ("load_ram", "store_ram", "update_ram"),
}
WINDOWS = 5
_LEAST_SHARE = 0.005  # no meter and no model is better than that


@dataclass(frozen=True)
class Energy:
    """Of one inference."""

    joules: float
    two_sigma_j: float
    instrument: str


Measure = Callable[[Subject], Energy]


@dataclass(frozen=True)
class PowerSubjects:
    """What is fitted, and the networks that are not."""

    fit: tuple[Subject, ...]
    held_out: tuple[Subject, ...]


@dataclass(frozen=True)
class Rates:
    """Watts, as PowerRates."""

    core_w: float
    multiply_w: float
    line_w: float


def power_subjects(subjects: Subjects) -> PowerSubjects:
    """The loops of each kind, and the networks, with the counts that the calibration of cycles has taken."""
    first, *networks = subjects.fit
    kinds = [
        replace(first, name=kind, counts=[first.counts[at] for at in _numbers(names)], issued={})
        for kind, names in KINDS.items()
    ]
    return PowerSubjects((*kinds, *networks), subjects.held_out)


def _numbers(names: tuple[str, ...]) -> list[int]:
    return [number for number, loop in enumerate(loops()) if loop.name.startswith(names)]


def energy_images(subject: Subject, board: Board, folder: Path) -> Images:
    """The same in an image that pulses its pin."""
    if subject.name in KINDS:
        write_loops([loops()[number] for number in _numbers(KINDS[subject.name])], folder / "generated")
    else:
        write_network(subject.name, board, folder / "generated")
    return build_images(board, folder / "generated", OPTIMISED, folder, measures_energy=True)


def fit_power(
    subjects: PowerSubjects, model: MemoryModel, clock_hz: int, measure: Measure, point: PowerPoint
) -> CalibratedPower:
    """Least squares on shares; `model` has the parameters that were fitted to the same device."""
    kinds, seen = _measured(subjects.fit, model, clock_hz, measure)
    joules = np.array([one.joules for one in seen])
    sigma = np.maximum(_LEAST_SHARE * joules, [one.two_sigma_j / 2 for one in seen])
    weighted = kinds / sigma[:, None]
    values, *_ = np.linalg.lstsq(weighted, joules / sigma, rcond=None)
    errors = (weighted @ values - joules / sigma) ** 2
    scatter = max(1.0, float(np.sum(errors)) / (len(seen) - len(RATES)))  # what three rates cannot say
    covariance = np.linalg.inv(weighted.T @ weighted) * scatter
    residual = float(np.sqrt(np.mean((kinds @ values / joules - 1) ** 2)))
    others, held_out = _measured(subjects.held_out, model, clock_hz, measure)
    predicted = others @ values
    share = 2 * np.sqrt(np.einsum("ij,jk,ik->i", others, covariance, others) / predicted**2 + residual**2)
    networks = HeldOut(predicted, share, np.array([one.joules for one in held_out]))
    two_sigma = 2 * np.sqrt(np.diag(covariance))
    seconds = {one.name: _seconds(one, model, clock_hz) for one in subjects.fit}
    found = dict(zip(RATES, (round(float(value), 5) for value in values), strict=True))
    return CalibratedPower(
        **found,
        uncertainty=dict(zip(RATES, (round(float(value), 5) for value in two_sigma), strict=True)),
        instrument=seen[0].instrument,
        point=point,
        kinds_w={
            one.name: round(energy.joules / seconds[one.name], 4)
            for one, energy in zip(subjects.fit, seen, strict=True)
            if one.name in KINDS
        },
        networks=networks.within(range(len(held_out))),
    )


def _measured(
    which: Sequence[Subject], model: MemoryModel, clock_hz: int, measure: Measure
) -> tuple[np.ndarray, list[Energy]]:
    kinds = np.array([cycle_kinds(one.profiles(model)) for one in which]) / clock_hz
    return kinds, [measure(one) for one in which]


def _seconds(subject: Subject, model: MemoryModel, clock_hz: int) -> float:
    return float(subject.cycles(model).sum()) / clock_hz


def on_board(device: AttachedDevice, meter: Instrument, board: Board, folder: Path) -> Measure:
    """By the instrument that bench.yaml ties to the board; images are built in `folder`."""

    def measure(subject: Subject) -> Energy:
        with device.running(energy_images(subject, board, folder / f"energy_{subject.name}")) as link:
            if subject.ops:
                link.load(trial_inputs(1)[0].tobytes())
            latency_s = sum(layer.ticks for layer in link.layers()) / link.clock_hz()
            seen = record_on_board(link, meter, latency_s, WINDOWS)
        return Energy(seen.report.energy_j, seen.report.two_sigma_j, seen.instrument)

    return measure


def simulated(rates: PowerRates, model: MemoryModel, clock_hz: int) -> Measure:
    """A device with these rates and costs before a simulated instrument."""

    def measure(subject: Subject) -> Energy:
        profiles = subject.profiles(model)
        watts = tuple(mean_power_w([op], rates, 0.0) for op in profiles)
        power = TwinPower(clock_hz, max(watts), (1.0,) * len(profiles), watts)
        cycles = [op.cycles_modelled for op in profiles]
        with twin_meter(power) as (meter, supply):
            plan = plan_windows(meter, sum(cycles) / clock_hz, WINDOWS)
            seen = record_windows(meter, plan, lambda windows: supply.executed(cycles, plan.inferences, windows))
        return Energy(seen.report.energy_j, seen.report.two_sigma_j, seen.instrument)

    return measure
