"""P_TSK, the loss of the masked network on unseen data, and its gradient by the width multipliers.

The masks are hard in the forward pass. Backwards, dP/dM of a group's channels becomes one number by the log-domain
sigmoid M(s, s0) = 1 / (1 + s0 / s) and the constraint mean(M) = pi (paper, section 'Pruning algorithm'):

    dP/dpi = C * sum_j dP/dM_j * d_j / sum_k d_k,   d = |dM/ds0| = s / (s + s0)^2,   s0 the last kept salience

`secant` replaces dP/dM_j by P(M_j = 1) - P(M_j = 0) in a second-order model with the diagonal of the empirical Fisher
information h_j = mean over examples of (dP_n/dM_j)^2:  g_j - h_j / 2  for a channel that lives,  g_j + h_j / 2  for one
that does not. The reason: scaling a channel is what gamma and beta already do, so at a minimum of the training loss the
tangent g_j of every living channel is 0, and what is left of it on a batch is mostly noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.nets.channels import Channels
from stages.prune.signal.masks import explicit_forward, saliences

Loss = Callable[[Tensor, Tensor], Tensor]  # of outputs and labels
MaskedLoss = Callable[[Sequence[Tensor]], Tensor]  # of the masks
SMALLEST_SALIENCE = 1e-8  # keeps the log-domain sigmoid finite for a gamma of 0


@dataclass(frozen=True, eq=False)
class TaskLoss:
    """P_TSK and its gradient by every width multiplier."""

    loss: float
    gradient: np.ndarray


def task_loss(
    net: nn.Module,
    channels: Channels,
    masks: Sequence[Tensor],
    batch: tuple[Tensor, Tensor],
    slope: str,
    loss_of: Loss = F.cross_entropy,
) -> TaskLoss:
    """In eval mode: an update must not touch the running statistics. `loss_of` is a mean over the examples."""
    was_training = net.training
    net.eval()
    x, y = batch

    def masked_loss(free: Sequence[Tensor]) -> Tensor:
        return loss_of(explicit_forward(channels, free, x), y)

    loss, by_mask = (_tangents if slope == "tangent" else _secants)(masked_loss, masks, len(y))
    net.train(was_training)
    gradient = [
        multiplier_gradient(slopes, salience, int(mask.sum()))
        for slopes, salience, mask in zip(by_mask, saliences(net, channels), masks, strict=True)
    ]
    return TaskLoss(loss, np.array(gradient))


def multiplier_gradient(by_mask: Tensor, salience: Tensor, width: int) -> float:
    """dP/dpi of a group from dP/dM of its channels: the log-domain sigmoid with its threshold at the last kept one."""
    values = salience.double().clamp_min(SMALLEST_SALIENCE)
    threshold = torch.sort(values, descending=True).values[width - 1]
    slope = values / (values + threshold) ** 2
    return len(values) * float((by_mask.double() * slope).sum() / slope.sum())


def _tangents(masked_loss: MaskedLoss, masks: Sequence[Tensor], _examples: int) -> tuple[float, list[Tensor]]:
    free = [mask.clone().requires_grad_() for mask in masks]
    loss = masked_loss(free)
    return float(loss.detach()), list(torch.autograd.grad(loss, free))


def _secants(masked_loss: MaskedLoss, masks: Sequence[Tensor], examples: int) -> tuple[float, list[Tensor]]:
    free = [mask.expand(examples, -1).clone().requires_grad_() for mask in masks]  # one of its own for every example
    loss = masked_loss(free)
    by_example = torch.autograd.grad(loss, free)  # of the mean: `examples` times smaller than an example's own
    slopes = [
        found.sum(0) + (0.5 - mask) * examples * found.square().sum(0)
        for found, mask in zip(by_example, masks, strict=True)
    ]
    return float(loss.detach()), slopes
