"""Gradients of both pruning losses by the width multipliers, against computations that share no code with them.

P_TSK: the network again in plain numpy, its masks moved by a finite step along the relaxation of the paper, whose
threshold is found by bisection. P_RES: finite differences of figures counted by hand for a network with branches.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from stages.nets.channels import find_channels
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.objectives import Objectives
from stages.prune.signal.masks import top_masks
from stages.prune.signal.task_loss import task_loss
from tests.stages.nets.small_backbones import shaken

HEIGHT, WIDTH, CLASSES = 6, 5, 4
STEM, WIDE, PLAIN = 5, 7, 6


class Branching(nn.Module):
    """A shortcut over an inverted bottleneck, then a convolution without batch normalisation: three groups."""

    def __init__(self, rectifies_sum: bool = False) -> None:
        super().__init__()
        self.rectifies_sum = rectifies_sum
        self.stem, self.stem_norm = nn.Conv2d(1, STEM, 3, padding=1), nn.BatchNorm2d(STEM)
        self.expand, self.expand_norm = nn.Conv2d(STEM, WIDE, 1), nn.BatchNorm2d(WIDE)
        self.deep, self.deep_norm = nn.Conv2d(WIDE, WIDE, 3, padding=1, groups=WIDE), nn.BatchNorm2d(WIDE)
        self.project, self.project_norm = nn.Conv2d(WIDE, STEM, 1), nn.BatchNorm2d(STEM)
        self.plain = nn.Conv2d(STEM, PLAIN, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(PLAIN, CLASSES)

    def forward(self, x):
        x = torch.relu(self.stem_norm(self.stem(x)))
        inner = torch.relu(self.deep_norm(self.deep(torch.relu(self.expand_norm(self.expand(x))))))
        x = x + self.project_norm(self.project(inner))
        x = torch.relu(x) if self.rectifies_sum else x
        x = torch.relu(self.plain(x))
        return self.classifier(torch.flatten(self.pool(x), 1))


def numpy_convolution(x, weight, bias, depthwise=False):
    """Stride 1, 'same' padding, tap by tap."""
    taps_y, taps_x = weight.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (taps_y // 2,) * 2, (taps_x // 2,) * 2))
    result = np.zeros((len(x), len(weight), *x.shape[2:])) + bias[:, None, None]
    for i in range(taps_y):
        for j in range(taps_x):
            seen = padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]
            tap = weight[:, :, i, j]
            result += seen * tap[:, 0, None, None] if depthwise else np.einsum("nchw,oc->nohw", seen, tap)
    return result


def numpy_loss(weights, masks, x, y, rectifies_sum=False):
    """Mean cross-entropy of the masked network in eval mode; masks may be any numbers.

    A ReLU behind the sum has no slope where both summands are 0, so there the mask stands behind it.
    """

    def norm(z, name):
        mean, variance, gamma, beta = (
            weights[f"{name}.{leaf}"][:, None, None] for leaf in ("running_mean", "running_var", "weight", "bias")
        )
        return gamma * (z - mean) / np.sqrt(variance + 1e-5) + beta

    def convolved(z, name, depthwise=False):
        return numpy_convolution(z, weights[f"{name}.weight"], weights[f"{name}.bias"], depthwise)

    stem, wide, plain = (mask[:, None, None] for mask in masks)
    x = np.maximum(norm(convolved(x, "stem"), "stem_norm"), 0)
    inner = np.maximum(norm(convolved(x * stem, "expand"), "expand_norm"), 0)
    inner = np.maximum(norm(convolved(inner, "deep", depthwise=True), "deep_norm"), 0) * wide
    projected = norm(convolved(inner, "project"), "project_norm")
    x = np.maximum(x + projected, 0) * stem if rectifies_sum else x * stem + projected * stem
    x = np.maximum(convolved(x, "plain"), 0) * plain
    scores = x.mean((2, 3)) @ weights["classifier.weight"].T + weights["classifier.bias"]
    scores -= scores.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


def relaxed_masks(salience, share):
    """1 / (1 + s0 / s) with the s0 for which their mean is `share`."""
    low, high = 1e-12, 1e12
    for _ in range(300):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if (1 / (1 + middle / salience)).mean() > share else (low, middle)
    return 1 / (1 + low / salience)


def mask_direction(salience, width):
    """dM/dpi of the relaxation, at the share where its threshold is the last kept salience."""
    threshold = np.sort(salience)[::-1][width - 1]
    share, step = (1 / (1 + threshold / salience)).mean(), 1e-6
    return (relaxed_masks(salience, share + step) - relaxed_masks(salience, share - step)) / (2 * step)


def salience_by_hand(weights):
    stem = np.maximum(abs(weights["stem_norm.weight"]), abs(weights["project_norm.weight"]))
    wide = np.maximum(abs(weights["expand_norm.weight"]), abs(weights["deep_norm.weight"]))
    return stem, wide, np.sqrt((weights["plain.weight"] ** 2).sum((1, 2, 3)))


@pytest.mark.parametrize("rectifies_sum", [False, True])
@pytest.mark.parametrize("widths", [(5, 7, 6), (3, 4, 2), (1, 6, 5)])
def test_task_gradient_is_that_of_a_numpy_network_along_the_relaxation(widths, rectifies_sum):
    torch.manual_seed(0)
    net = shaken(Branching(rectifies_sum).double())
    channels = find_channels(net, (HEIGHT, WIDTH, 1))
    weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    salience = salience_by_hand(weights)
    masks = top_masks([torch.from_numpy(values) for values in salience], widths)
    x, y = torch.randn(9, 1, HEIGHT, WIDTH).double(), torch.randint(0, CLASSES, (9,))

    found = task_loss(net, channels, masks, (x, y), "tangent")

    hard, step = [mask.numpy() for mask in masks], 1e-5
    assert found.loss == pytest.approx(numpy_loss(weights, hard, x.numpy(), y.numpy(), rectifies_sum), rel=1e-9)
    for group in range(3):
        along = mask_direction(salience[group], widths[group])
        losses = []
        for sign in (1, -1):
            moved = [mask + sign * step * along if number == group else mask for number, mask in enumerate(hard)]
            losses.append(numpy_loss(weights, moved, x.numpy(), y.numpy(), rectifies_sum))
        assert found.gradient[group] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4, abs=1e-8)


def counted_by_hand(stem, wide, plain):
    """Size, peak and MACs of Branching with any widths."""
    pixels = HEIGHT * WIDTH
    weights = 9 * stem + stem * wide + 9 * wide + wide * stem + 9 * stem * plain + plain * CLASSES
    biases = 4 * (stem + wide + wide + stem + plain + CLASSES)
    per_pixel = 9 * stem + stem * wide + 9 * wide + wide * stem + 9 * stem * plain + stem + plain
    alive = (
        1 + stem,  # input and stem
        stem + wide,  # the shortcut, which expand reads, and what it writes
        stem + 2 * wide,  # the shortcut waits for the depthwise convolution
        stem + wide + stem,  # ... and for the projection; the sum is written over it
        stem + plain,
    )
    touched = (1 + stem, stem + wide, 2 * wide, wide + stem, 2 * stem, stem + plain)
    return {
        "size_bytes": weights + biases,
        "macs": per_pixel * pixels + plain * CLASSES,
        "peak_bytes": pixels * max(alive),
        "imprecise": pixels * max(touched),
    }


@pytest.mark.parametrize("multipliers", [(1.0, 1.0, 1.0), (0.9, 0.4, 0.8), (0.5, 0.3, 0.95), (0.31, 0.77, 0.13)])
@pytest.mark.parametrize("peak", ["exact", "imprecise"])
def test_resource_gradient_is_that_of_figures_counted_by_hand(multipliers, peak):
    channels = find_channels(Branching(), (HEIGHT, WIDTH, 1))
    limits = {"size_bytes": 300, "macs": 5000, "peak_bytes": 200}
    budget = BudgetConfig(size_bytes="300B", macs="5K", peak_bytes="200B")
    objectives = Objectives(channels, PruneConfig(peak=peak), budget)
    full, step = np.array([STEM, WIDE, PLAIN]), 1e-6

    def by_hand(name, values):
        key = "imprecise" if (name, peak) == ("peak_bytes", "imprecise") else name
        return counted_by_hand(*(full * values))[key] / limits[name] - 1

    for name in limits:
        found = objectives.loss([name], np.array(multipliers))
        assert found.loss == pytest.approx(by_hand(name, multipliers))
        for group in range(3):
            above, below = (np.array(multipliers) + sign * step * np.eye(3)[group] for sign in (1, -1))
            slope = (by_hand(name, above) - by_hand(name, below)) / (2 * step)
            assert found.gradient[group] == pytest.approx(slope, rel=1e-5, abs=1e-6), (name, group)
    together = objectives.loss(list(limits), np.array(multipliers))
    parts = [objectives.loss([name], np.array(multipliers)) for name in limits]
    assert together.loss == pytest.approx(sum(part.loss for part in parts))
    assert together.gradient == pytest.approx(sum(part.gradient for part in parts))
