"""The paper's update of the widths, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stages.nets.channels import find_channels
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prune.config import PruneConfig
from stages.prune.objectives import exceeded
from stages.prune.signal.masks import explicit_forward
from stages.prune.signal.task_loss import multiplier_gradient
from stages.prune.width_update import WidthUpdate

SHAPE = (49, 10, 1)
NETWORK = NetworkConfig(width=24, blocks=2)
TIGHT = BudgetConfig(peak_bytes="6150B", size_bytes="900B", macs="250K")  # 10 channels in the stem


def pruning_of(budget=TIGHT, **settings):
    torch.manual_seed(0)
    net = build(NETWORK)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in net.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data.uniform_(0.5, 1.5, generator=generator)
    return net, WidthUpdate(find_channels(net, SHAPE), PruneConfig(**settings), budget)


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(20, 1, 49, 10, generator=generator), torch.randint(0, 12, (20,), generator=generator)


def test_multiplier_gradient_is_that_of_the_relaxed_masks():
    salience = torch.tensor([0.2, 1.0, 3.0, 0.7, 0.05]).double()
    by_mask = torch.tensor([0.3, -1.0, 2.0, 0.1, -0.4]).double()
    threshold = 0.7  # third largest: width 3

    def relaxed(share: float) -> torch.Tensor:
        """Masks whose mean is `share`: the threshold found by bisection."""
        low, high = 1e-9, 1e9
        for _ in range(200):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if float((salience / (salience + middle)).mean()) > share else (low, middle)
        return salience / (salience + low)

    share, step = float((salience / (salience + threshold)).mean()), 1e-5
    slope = float((by_mask * (relaxed(share + step) - relaxed(share - step))).sum()) / (2 * step)
    assert multiplier_gradient(by_mask, salience, 3) == pytest.approx(slope, rel=1e-4)


def test_task_gradient_is_taken_at_the_hard_masks_and_leaves_the_network_alone():
    net, pruning = pruning_of()
    x, y = batch()
    net.train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    pruning.update(net, x, y)
    found = pruning.task_loss(net, x, y)
    loss, gradient = found.loss, found.gradient
    net.eval()
    with torch.no_grad():
        expected = float(F.cross_entropy(explicit_forward(pruning.channels, pruning.state.masks, x), y))
    assert loss == pytest.approx(expected)
    assert gradient.shape == (3,) and np.abs(gradient).min() > 0
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_resource_gradient_agrees_with_finite_differences():
    _, pruning = pruning_of()
    pruning.state.theta = np.log([0.9, 0.6, 0.75])
    for objective in ("size_bytes", "macs", "peak_bytes"):
        gradient = pruning.resource_loss(objective).gradient
        for group in range(3):
            losses = []
            for sign in (1, -1):
                multipliers = np.array([0.9, 0.6, 0.75])
                multipliers[group] += sign * 1e-5
                moved = pruning_of()[1]
                moved.state.theta = np.log(multipliers)
                losses.append(moved.resource_loss(objective).loss)
            assert gradient[group] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("rule", ["initial_losses", "first_gradients"])
def test_pruning_ends_just_below_the_budgets(rule):
    net, pruning = pruning_of(rate=2.0, alpha_rule=rule, task_weight=0.3)
    history = [pruning.widths()]
    while not pruning.state.reached:
        assert pruning.state.updates < 500
        history.append(pruning.update(net, *batch(pruning.state.updates)).widths)
    widths, before = history[-1], history[-2]
    assert not exceeded(pruning.objectives.resources(widths), TIGHT)
    assert exceeded(pruning.objectives.resources(before), TIGHT)
    one_less = [width + (width < earlier) for width, earlier in zip(widths, before, strict=True)]
    assert exceeded(
        pruning.objectives.resources(one_less), TIGHT
    )  # a little less of the last step would not have been enough
    assert all(
        after <= earlier
        for pair in zip(history, history[1:], strict=False)
        for earlier, after in zip(*pair, strict=True)
    )
    assert [int(mask.sum()) for mask in pruning.state.masks] == list(widths)


def test_no_objective_is_pruned_below_its_budget_for_its_own_sake():
    # Rate 40 would halve every width in one update; size and MACs are then far below their budgets.
    budget = BudgetConfig(peak_bytes="1MB", size_bytes="1800B", macs="400K")
    net, pruning = pruning_of(budget=budget, rate=40.0)
    while not pruning.state.reached:
        moved = pruning.update(net, *batch())
        if moved.move and getattr(moved.resources, moved.move.objective) <= getattr(budget, moved.move.objective):
            wider = [width + 1 for width in moved.widths]
            name = moved.move.objective
            assert getattr(pruning.objectives.resources(wider), name) > getattr(budget, name)
    assert pruning.state.updates <= 3


def test_after_the_budgets_are_met_only_masks_change_until_they_have_settled():
    net, pruning = pruning_of(budget=BudgetConfig(peak_bytes="1MB", size_bytes="1MB", macs="1G"), settle_updates=2)
    for expected in (False, False, True):
        moved = pruning.update(net, *batch())
        assert (moved.widths, moved.move) == ((24, 24, 24), None)
        assert pruning.is_settled is expected


def test_an_update_never_moves_a_multiplier_further_than_the_cap():
    net, pruning = pruning_of(rate=3.0, gradient_cap=0.02)
    pruning.update(net, *batch())
    pruning.state.alpha_resource = 1e6
    theta = pruning.state.theta.copy()
    pruning.update(net, *batch())
    assert (theta - pruning.state.theta).max() == pytest.approx(3.0 * 0.02 * np.exp(theta).max())


def test_peak_alone_shrinks_only_the_bottleneck():
    net, pruning = pruning_of(budget=BudgetConfig(peak_bytes="6150B", size_bytes="1MB", macs="1G"))
    while not pruning.state.reached:
        assert pruning.update(net, *batch()).move.objective == "peak_bytes"
    assert pruning.widths() == (10, 24, 24)


def test_only_violated_objectives_are_chosen_and_each_has_its_turn():
    net, pruning = pruning_of(budget=BudgetConfig(peak_bytes="1MB", size_bytes="900B", macs="250K"), rate=0.1)
    chosen = [pruning.update(net, *batch()).move.objective for _ in range(30)]
    assert set(chosen) == {"size_bytes", "macs"}


def test_no_group_falls_below_the_minimum():
    budget = BudgetConfig(peak_bytes="6150B", size_bytes="1MB", macs="1G")
    net, pruning = pruning_of(budget=budget, min_channels=10, rate=50.0)
    pruning.update(net, *batch())
    assert pruning.widths() == (10, 24, 24)


def test_first_gradients_rule_gives_the_task_its_share_of_the_cap():
    net, pruning = pruning_of(alpha_rule="first_gradients", task_weight=0.5)
    task = pruning.task_loss(net, *batch()).gradient
    pruning.update(net, *batch())
    assert pruning.state.alpha_task * np.abs(task).mean() == pytest.approx(0.5 * 0.025)


def test_initial_losses_rule_follows_the_paper():
    net, pruning = pruning_of(alpha_rule="initial_losses", task_weight=2 / 3)
    loss = pruning.task_loss(net, *batch()).loss
    worst = max(pruning.resource_loss(name).loss for name in ("size_bytes", "macs", "peak_bytes"))
    pruning.update(net, *batch())
    assert pruning.state.alpha_task / pruning.state.alpha_resource == pytest.approx(2 / 3 * worst / loss)
