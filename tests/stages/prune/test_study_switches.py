"""The switches of the paper's studies, each on a small network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from pipeline.errors import ConfigError
from stages.nets.channels import find_channels
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prune.config import OBJECTIVES, PruneConfig
from stages.prune.objectives import Objectives, exceeded
from stages.prune.signal.masks import explicit_forward
from stages.prune.signal.task_loss import task_loss
from stages.prune.width_update import WidthUpdate
from stages.prune.widths import WidthRule, uniform_widths

CHAIN = NetworkConfig(width=24, blocks=2)
TIGHT = BudgetConfig(peak_bytes="6150B", size_bytes="900B", macs="250K")
RESIDUAL = NetworkConfig(name="res15", width=12)


def pruning_of(network=CHAIN, budget=TIGHT, **settings):
    torch.manual_seed(0)
    net = build(network)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in net.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data.uniform_(0.5, 1.5, generator=generator)
    return net, WidthUpdate(find_channels(net, network.input_shape), PruneConfig(**settings), budget)


def batch(seed=0, count=20):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 49, 10, generator=generator), torch.randint(0, 12, (count,), generator=generator)


def pruned(net, pruning, most_updates=500):
    for number in range(most_updates):
        if pruning.state.reached:
            break
        pruning.update(net, *batch(number))
    assert pruning.state.reached
    return pruning.objectives.resources(pruning.widths())


def test_without_a_peak_objective_the_peak_budget_is_broken_and_the_others_hold():
    used = pruned(*pruning_of(budget=BudgetConfig(peak_bytes="3KB", size_bytes="900B", macs="250K"),
                              objectives=("size_bytes", "macs")))  # fmt: skip
    assert exceeded(used, BudgetConfig(peak_bytes="3KB", size_bytes="900B", macs="250K")) == ["peak_bytes"]


def test_the_imprecise_peak_breaks_the_true_budget_of_a_residual_network_and_the_exact_one_does_not():
    budget = BudgetConfig(peak_bytes="9KB")
    exact = pruned(*pruning_of(RESIDUAL, budget, peak="exact"))
    assert exact.peak_bytes <= 9000
    imprecise = pruned(*pruning_of(RESIDUAL, budget, peak="imprecise"))
    assert imprecise.peak_bytes_imprecise <= 9000 < imprecise.peak_bytes


def test_on_a_chain_the_imprecise_peak_is_the_exact_one():
    budget = BudgetConfig(peak_bytes="6150B")
    assert pruned(*pruning_of(budget=budget, peak="imprecise")) == pruned(*pruning_of(budget=budget))


def test_resource_only_ignores_the_task_and_never_computes_its_loss():
    net, pruning = pruning_of(losses="resource")
    step = pruning.update(net, *batch())
    assert step.move.task_loss is None and step.move.task_pull is None
    _, other = pruning_of(losses="resource")
    other.update(net, *batch(seed=77))
    assert np.array_equal(pruning.state.theta, other.state.theta)


def test_task_only_moves_just_the_groups_whose_task_loss_would_fall():
    net, pruning = pruning_of(losses="task")
    net.eval()
    x, y = batch()
    with torch.no_grad():
        guesses = net(x).argmax(1)  # labels that agree: then every channel helps
    batches = [(x, y), (x, guesses), (x, torch.where(torch.arange(20) < 10, y, guesses))]
    slopes = [pruning.task_loss(net, *labelled).gradient for labelled in batches]
    assert (slopes[0] > 0).any() and (slopes[1] < 0).any()
    for labelled, slope in zip(batches, slopes, strict=True):
        same_net, fresh = pruning_of(losses="task")
        step = fresh.update(same_net, *labelled)
        assert ((fresh.state.theta < 0) == (slope > 0)).all()
        assert (step.move.objective, step.move.resource_loss) == ("task", 0.0)


def test_task_only_stops_at_the_budgets():
    net, pruning = pruning_of(losses="task", rate=20.0)
    pruned(net, pruning)
    widths = pruning.widths()
    pruning.update(net, *batch(999))
    assert pruning.widths() == widths


def test_the_sum_follows_every_violated_objective_and_no_other():
    net, pruning = pruning_of(
        budget=BudgetConfig(peak_bytes="1MB", size_bytes="900B", macs="250K"), scalarisation="sum"
    )
    size, macs = pruning.resource_loss("size_bytes"), pruning.resource_loss("macs")
    step = pruning.update(net, *batch())
    assert step.move.objective == "size_bytes+macs"
    assert step.move.resource_loss == pytest.approx(size.loss + macs.loss)
    used = pruned(net, pruning)
    assert not exceeded(used, BudgetConfig(size_bytes="900B", macs="250K"))


@pytest.mark.parametrize("multiple", [2, 4, 8])
def test_pruned_groups_have_a_multiple_of_channels_and_unpruned_ones_keep_theirs(multiple):
    network = NetworkConfig(width=27, blocks=2)
    net, pruning = pruning_of(network, BudgetConfig(peak_bytes="9KB"), channel_multiple=multiple, min_channels=3)
    assert pruning.widths() == (27, 27, 27)
    pruned(net, pruning)
    stem, *others = pruning.widths()
    assert stem % multiple == 0 and stem < 27 and others == [27, 27]
    assert [int(mask.sum()) for mask in pruning.state.masks] == list(pruning.widths())
    assert pruning.rule.smallest == (max(multiple, 4 if multiple < 8 else 8),) * 3


def test_configured_alphas_take_the_place_of_the_rule():
    net, pruning = pruning_of(alpha_resource=0.5, alpha_task=0.125)
    pruning.update(net, *batch())
    assert (pruning.state.alpha_resource, pruning.state.alpha_task) == (0.5, 0.125)


def test_every_gradient_scales_anew_in_each_update():
    net, pruning = pruning_of(alpha_rule="every_gradient", task_weight=0.5, rate=0.5)
    for seed in range(4):
        task = pruning.task_loss(net, *batch(seed)).gradient
        step = pruning.update(net, *batch(seed))
        assert pruning.state.alpha_task * np.abs(task).mean() == pytest.approx(0.5 * 0.025)
        assert step.move.resource_pull <= 0.025 + 1e-9


def test_a_late_start_is_a_matter_of_the_training_loop_and_live_masks_never_settle():
    roomy = BudgetConfig(peak_bytes="1MB")
    net, pruning = pruning_of(budget=roomy, early_termination=False, settle_updates=0)
    for _ in range(5):
        pruning.update(net, *batch())
    assert pruning.state.reached and not pruning.is_settled


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("name", ["chain", "residual"])
def test_uniform_scaling_finds_the_widest_network_within_all_budgets(name, multiple):
    network, budget = {
        "chain": (CHAIN, TIGHT),
        "residual": (RESIDUAL, BudgetConfig(peak_bytes="9KB", macs="2M")),
    }[name]
    channels = find_channels(build(network), network.input_shape)
    config = PruneConfig(min_channels=2, channel_multiple=multiple)
    rule, objectives = WidthRule(channels, config), Objectives(channels, config, budget)
    found = uniform_widths(rule, objectives)
    # Slowly: every share in steps far finer than a channel.
    fitting = [rule.uniform(share) for share in np.arange(1, 2001) / 2000]
    fitting = [widths for widths in fitting if not exceeded(objectives.resources(widths), budget)]
    assert found == max(fitting)
    assert len(set(found)) == 1


def test_uniform_scaling_scales_different_widths_by_one_share():
    network = NetworkConfig(name="resnet8", width=16)
    channels = find_channels(build(network), network.input_shape)
    config = PruneConfig(min_channels=1)
    rule = WidthRule(channels, config)
    found = uniform_widths(rule, Objectives(channels, config, BudgetConfig(size_bytes="20KB")))
    shares = [width / full for width, full in zip(found, channels.widths, strict=True)]
    assert len(set(channels.widths)) > 1 and max(shares) - min(shares) <= 1 / min(channels.widths)


def test_the_secant_is_the_loss_difference_of_a_quadratic_model():
    """g and h by one backward pass per example, no vectorisation."""
    net, pruning = pruning_of()
    for _ in range(3):
        pruning.update(net, *batch())
    masks, channels = pruning.state.masks, pruning.channels
    x, y = batch(3, count=6)
    net.eval()
    by_example = []
    for number in range(len(y)):
        free = [mask.clone().requires_grad_() for mask in masks]
        loss = F.cross_entropy(explicit_forward(channels, free, x[number : number + 1]), y[number : number + 1])
        by_example.append(torch.autograd.grad(loss, free))
    found = task_loss(net, channels, masks, (x, y), "secant").gradient
    from stages.prune.signal.masks import saliences
    from stages.prune.signal.task_loss import multiplier_gradient

    for group, (mask, salience) in enumerate(zip(masks, saliences(net, channels), strict=True)):
        examples = torch.stack([gradients[group] for gradients in by_example]).double()
        tangent, fisher = examples.mean(0), examples.square().mean(0)
        difference = torch.where(mask > 0, tangent - fisher / 2, tangent + fisher / 2)
        assert found[group] == pytest.approx(multiplier_gradient(difference, salience, int(mask.sum())), rel=1e-4)


def test_objectives_without_a_budget_are_refused():
    with pytest.raises(ConfigError, match="prune.objectives: found macs, none of which has a budget; there is one for"):
        pruning_of(budget=BudgetConfig(size_bytes="900B"), objectives=("macs",))


@pytest.mark.parametrize("objectives", [(), ("macs", "macs"), ("latency",)])
def test_objectives_that_make_no_sense_are_refused(objectives):
    with pytest.raises(ValidationError):
        PruneConfig(objectives=objectives)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, False),
        ({"scalarisation": "sum", "losses": "resource", "alpha_rule": "first_gradients"}, False),
        ({"method": "uniform", "channel_multiple": 4}, False),
        ({"missed_budgets": "report"}, True),
        ({"losses": "task"}, True),
        ({"peak": "imprecise"}, True),
        ({"objectives": ("size_bytes", "macs")}, True),
    ],
)
def test_only_a_study_may_end_over_its_budgets(settings, expected):
    assert PruneConfig(**settings).may_miss(OBJECTIVES) is expected
    assert PruneConfig(objectives=("macs",)).may_miss(["macs"]) is False
    assert PruneConfig(peak="imprecise").may_miss(["macs"]) is False
