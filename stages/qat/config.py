"""The section `qat`, each default beside its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.stage import Config


class QatConfig(Config):
    """How long and how to fine-tune."""

    epochs: int = Field(default=10, ge=0)  # 0: calibration only
    batch: int = Field(default=100, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)  # Adam's, at the start of the cosine schedule
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)  # the same as in prune by default
    calibration_samples: int = Field(default=500, ge=1)  # of the training split
    # least_error: the range of an activation is clipped where that makes the squared error least. percentile: to the
    # share of the values below, on both ends. learned: from the least error on, trained like the weights.
    ranges: Literal["least_error", "percentile", "learned"] = "least_error"
    percentile: float = Field(default=99.99, gt=50, le=100)
    bias_correction: bool = False  # biases take up what rounding adds to the mean of a channel (arXiv:1906.04721)
    # best: of the calibrated network and the ones behind each epoch, the one that is best on the validation examples.
    keep: Literal["last", "best"] = "last"
    threads: int = Field(default=2, ge=1)  # part of the result: sums are split among them
    seed: int = Field(default=0, ge=0)
