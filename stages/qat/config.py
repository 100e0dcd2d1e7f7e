"""The section `qat`, each default beside its reason."""

from __future__ import annotations

from pydantic import Field

from pipeline.stage import Config


class QatConfig(Config):
    """How long and how to fine-tune."""

    epochs: int = Field(default=10, ge=0)  # 0: calibration only
    batch: int = Field(default=100, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)  # Adam's, at the start of the cosine schedule
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)  # the same as in prune by default
    calibration_samples: int = Field(default=500, ge=1)  # of the training split
    threads: int = Field(default=2, ge=1)  # part of the result: sums are split among them
    seed: int = Field(default=0, ge=0)
