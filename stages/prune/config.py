"""The section `prune`: training recipe, pruning algorithm and study switches, each default beside its reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field, model_validator

from pipeline.stage import Config

Objective = Literal["peak_bytes", "size_bytes", "macs"]
OBJECTIVES: tuple[Objective, ...] = ("peak_bytes", "size_bytes", "macs")

USUAL_BATCH, SMALLEST_BATCH, STEPS_PER_EPOCH = 100, 16, 20


class PruneConfig(Config):
    """Training and pruning; 'paper' marks values that the paper fixes."""

    epochs: int = Field(default=100, ge=1)
    batch: int | None = Field(default=None, ge=2)  # None: 100; of a small set less, so that an epoch has 20 steps
    # Peak of SGD's cosine schedule. None: 0.1, and for a batch that is smaller because the set is, in proportion.
    learning_rate: float | None = Field(default=None, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup_epochs: float = Field(default=1.0, ge=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    seed: int = 0
    threads: int = Field(default=2, ge=1)  # results depend on it in the last bits, so it is no machine setting

    # The pace of pruning. None: the usual one (`with_usual_pace`), or a faster one where the training is too short.
    rate: float | None = Field(default=None, gt=0)  # eta_pi, learning rate of the width multipliers
    update_every: int | None = Field(default=None, ge=1)  # training steps between two updates of the widths
    start_step: int | None = Field(default=None, ge=0)  # first update; before it all saliences are nearly equal
    # initial_losses: alpha_TSK = r * P_RES / P_TSK at the first update (paper). first_gradients: alpha_TSK brings the
    # first task gradients to r * cap (paper, appendix A). every_gradient: both are scaled anew in each update, so that
    # the task keeps its share when its gradients shrink or grow during training.
    alpha_rule: Literal["initial_losses", "first_gradients", "every_gradient"] = "initial_losses"
    task_weight: float = Field(default=2 / 3, ge=0)  # r, share of the task loss (paper: 1/2 to 3/4, typically 2/3)
    gradient_cap: float = Field(default=0.025, gt=0)  # paper, appendix on sensitivity
    validation_batch: int = Field(default=100, ge=1)  # clips for the task loss of one update
    early_termination: bool = True  # shrink once the budgets hold; false: the masks stay live until QAT (paper)
    settle_updates: int = Field(
        default=3, ge=0
    )  # updates of the masks alone, between reaching the budgets and shrinking
    min_channels: int = Field(default=4, ge=1)
    channel_multiple: Literal[1, 2, 4, 8] = 1  # of a pruned group's width; kernels work on 2 or 4 channels at once

    # Augmentation of sounds; pictures are never given it.
    shift_frames: int = Field(default=4, ge=0)  # shift in time by at most this
    masked_frames: int = Field(default=6, ge=0)  # longest stretch of frames set to the mean
    masked_coefficients: int = Field(default=1, ge=0)  # widest band of coefficients set to the mean
    noise: float = Field(default=0.1, ge=0)  # standard deviation added to the (standardised) features

    # Study switches: what the paper's ablations and sensitivity studies turn.
    method: Literal["differentiable", "uniform"] = "differentiable"  # uniform: all layers scaled alike before training
    losses: Literal["both", "task", "resource"] = "both"  # which of P_TSK and P_RES move the widths
    objectives: tuple[Objective, ...] = OBJECTIVES  # of P_RES; one without a budget is left out anyway
    peak: Literal["exact", "imprecise"] = "exact"  # imprecise: the largest op alone, as in earlier work
    scalarisation: Literal["random", "sum"] = "random"  # of the objectives over their budgets
    # tangent: dP_TSK/dM as autograd gives it (paper). secant: the difference of P_TSK between mask 1 and mask 0 in a
    # second-order model; near a minimum of the training loss the tangent of a living channel vanishes.
    task_slope: Literal["tangent", "secant"] = "tangent"
    alpha_resource: float | None = Field(default=None, ge=0)  # instead of the rule's, for sweeps
    alpha_task: float | None = Field(default=None, ge=0)
    missed_budgets: Literal["error", "report"] = "error"  # report: end with `fits: false`, as a sweep needs it

    @model_validator(mode="after")
    def _has_objectives(self) -> PruneConfig:
        if not self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ValueError(f"found objectives {list(self.objectives)}, needed one to three different ones")
        return self

    def batch_of(self, examples: int) -> int:
        """Examples of a step; small sets get smaller ones, so that an epoch has steps to prune in."""
        usual = max(SMALLEST_BATCH, min(USUAL_BATCH, examples // STEPS_PER_EPOCH))
        return min(self.batch or usual, examples)

    def with_usual_pace(self) -> PruneConfig:
        """The pace of the paper where none is given; a rate of 4 takes some 40 updates for KWS-S, 20 for KWS-M."""
        usual = {"rate": 4.0, "update_every": 20, "start_step": 40}
        return self.model_copy(update={key: value for key, value in usual.items() if getattr(self, key) is None})

    def may_miss(self, budgets: Collection[str]) -> bool:
        """Whether a network over its budgets is a finding: the run was told not to look at all of them, or to go on."""
        sees_peak = self.peak == "exact" or "peak_bytes" not in budgets
        sees_all = self.losses != "task" and sees_peak and set(budgets) <= set(self.objectives)
        return self.missed_budgets == "report" or not sees_all
