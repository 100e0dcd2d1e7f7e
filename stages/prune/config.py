"""The section `prune`: training recipe and pruning algorithm, each default beside its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.stage import Config


class PruneConfig(Config):
    """Training and pruning; 'paper' marks values that the paper fixes."""

    epochs: int = Field(default=100, ge=1)
    batch: int = Field(default=100, ge=2)
    learning_rate: float = Field(default=0.1, gt=0)  # peak of SGD's cosine schedule
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup_epochs: float = Field(default=1.0, ge=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    seed: int = 0
    threads: int = Field(default=2, ge=1)  # results depend on it in the last bits, so it is no machine setting

    rate: float = Field(
        default=4.0, gt=0
    )  # eta_pi, learning rate of the width multipliers; about 155/rate updates for KWS-S
    update_every: int = Field(default=20, ge=1)  # training steps between two updates of the widths (paper)
    start_step: int = Field(default=40, ge=0)  # first update; before it all saliences are nearly equal
    alpha_rule: Literal["initial_losses", "first_gradients"] = "initial_losses"
    task_weight: float = Field(default=2 / 3, ge=0)  # r, share of the task loss (paper: 1/2 to 3/4, typically 2/3)
    gradient_cap: float = Field(default=0.025, gt=0)  # paper, appendix on sensitivity
    validation_batch: int = Field(default=100, ge=1)  # clips for the task loss of one update
    settle_updates: int = Field(
        default=3, ge=0
    )  # updates of the masks alone, between reaching the budgets and shrinking
    min_channels: int = Field(default=4, ge=1)

    shift_frames: int = Field(default=4, ge=0)  # augmentation: shift in time by at most this
    masked_frames: int = Field(default=6, ge=0)  # longest stretch of frames set to the mean
    masked_coefficients: int = Field(default=1, ge=0)  # widest band of coefficients set to the mean
    noise: float = Field(default=0.1, ge=0)  # standard deviation added to the (standardised) features
