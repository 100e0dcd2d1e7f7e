"""From cycles that a device took to the parameters of the model that explain them, with what each may be off.

Gauss-Newton on relative errors with a weak pull to the described values, so that what no loop tells stays where it
was. The uncertainty of a parameter is twice its standard deviation by the residual of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_ROUNDS = 6
_STEP = 0.02  # share of a parameter by which the model is tried, for its slope
_PRIOR = 0.5  # share: how far a described value may be off before anything is measured
_FLOOR = 0.002  # share: no counter and no model is better than that


@dataclass(frozen=True)
class Fitted:
    """Parameters in the order given, their uncertainty (2 sigma), and the typical error of what was fitted."""

    values: np.ndarray
    uncertainty: np.ndarray
    residual: float
    covariance: np.ndarray


def fitted(predict: Callable[[np.ndarray], np.ndarray], seen: Sequence[float], start: np.ndarray) -> Fitted:
    """`predict` gives cycles for parameters; `seen` are those measured."""
    measured = np.asarray(seen, float)
    values, scale = start.astype(float).copy(), np.maximum(np.abs(start), 1.0)
    sigma = np.full(len(measured), 0.01)
    for round_ in range(_ROUNDS):
        errors, slopes = _linearised(predict, measured, values, scale)
        if round_:
            spread = 1.4826 * float(np.median(np.abs(errors)))
            sigma = np.maximum(_FLOOR, np.maximum(spread, np.abs(errors) / 3))  # what the model cannot say counts less
        weighted, pulls = slopes / sigma[:, None], np.eye(len(values)) / _PRIOR
        left = np.vstack([weighted, pulls])
        right = np.concatenate([errors / sigma, (start - values) / scale / _PRIOR])
        step, *_ = np.linalg.lstsq(left, right, rcond=None)
        values = np.maximum(values + step * scale, 0.0)
        if np.max(np.abs(step)) < 1e-4:
            break
    errors, slopes = _linearised(predict, measured, values, scale)
    weighted = np.vstack([slopes / sigma[:, None], np.eye(len(values)) / _PRIOR])
    covariance = np.linalg.inv(weighted.T @ weighted)
    two_sigma = 2 * np.sqrt(np.diag(covariance)) * scale
    return Fitted(values, two_sigma, float(np.sqrt(np.mean(errors**2))), covariance * np.outer(scale, scale))


def _linearised(
    predict: Callable[[np.ndarray], np.ndarray], measured: np.ndarray, values: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors, and how each changes with each parameter in units of its scale."""
    now = predict(values)
    slopes = np.empty((len(measured), len(values)))
    for index in range(len(values)):
        moved = values.copy()
        moved[index] += _STEP * scale[index]
        slopes[:, index] = (predict(moved) - now) / measured / _STEP
    return (measured - now) / measured, slopes


def prediction_share(predict: Callable[[np.ndarray], np.ndarray], fit: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of other code, and what they may be off as a share (2 sigma, from parameters and residual)."""
    cycles = predict(fit.values)
    slopes = np.empty((len(cycles), len(fit.values)))
    for index, value in enumerate(fit.values):
        step = _STEP * max(abs(value), 1.0)
        moved = fit.values.copy()
        moved[index] += step
        slopes[:, index] = (predict(moved) - cycles) / step
    variance = np.einsum("ij,jk,ik->i", slopes, fit.covariance, slopes)
    return cycles, 2 * np.sqrt(variance / cycles**2 + fit.residual**2)
