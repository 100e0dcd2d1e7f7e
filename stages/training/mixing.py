"""Training examples laid over one another: mixup (arXiv:1710.09412) and cutmix (arXiv:1905.04899).

Every example is mixed with its neighbour in the batch, which the shuffling has drawn. What a step draws depends on the
seed and its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from stages.training.determinism import derived_seed


@dataclass(frozen=True, eq=False)
class Labels:
    """The class of every example, and that of what was mixed into it with what is left of 1."""

    first: Tensor
    second: Tensor
    share: float

    def loss(self, logits: Tensor, smoothing: float) -> Tensor:
        """Cross-entropy, as of labels that are shared between two classes."""
        first, second = (F.cross_entropy(logits, y, label_smoothing=smoothing) for y in (self.first, self.second))
        return self.share * first + (1 - self.share) * second


def mixed(x: Tensor, y: Tensor, mixup: float, cutmix: float, seed: int, step: int) -> tuple[Tensor, Labels]:
    """A batch (N, C, H, W) mixed with itself."""
    draw = np.random.default_rng(derived_seed(seed, "mixing", step))
    pastes = cutmix > 0 and (mixup == 0 or draw.random() < 0.5)
    alpha = cutmix if pastes else mixup
    share = float(draw.beta(alpha, alpha))
    other, labels = x.roll(1, 0), y.roll(1, 0)
    if not pastes:
        return x * share + other * (1 - share), Labels(y, labels, share)
    height, width = x.shape[2:]
    side = float(np.sqrt(1 - share))
    rows, columns = (_stretch(length, side, draw) for length in (height, width))
    pasted = x.clone()
    pasted[:, :, rows, columns] = other[:, :, rows, columns]
    covered = (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
    return pasted, Labels(y, labels, 1 - covered)


def _stretch(length: int, share: float, draw: np.random.Generator) -> slice:
    """A part around a random middle, cut off at the ends."""
    middle, half = draw.integers(length), length * share / 2
    return slice(max(0, round(middle - half)), min(length, round(middle + half)))
