"""What P_TSK tells the pruner, and whether it is true: its gradients beside the loss that a cut really costs.

    python -m tests.benchmarks.pruning_signal --data FOLDER [--experiment kws_dscnn_s] [--updates 1,8,16,24] [--set ...]

A run is trained and pruned as configured. At the named updates, for every channel group:
  true      (P(now) - P(cut)) / (cut / C): what P_TSK on many validation examples loses per unit of pi when the next
            channels (5 % of the group, by salience) are masked; a negative number resists
  tangent   dP_TSK/dpi as the paper computes it: mean over batches, and standard deviation of one batch
  secant    the same with the second-order slope
  resource  alpha_RES * dP_RES/dpi of the violated objective with the largest loss
Below: how well tangent and secant rank the groups (correlation with `true`, of the mean and of single batches), and
what each alpha rule would make of them in units of the gradient cap.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from stages.prune.config import PruneConfig
from stages.prune.run import PruningRun, started
from stages.prune.signal.masks import folded_forward, saliences, top_masks
from stages.prune.signal.task_loss import task_loss
from stages.prune.task import Task
from stages.training.determinism import reproducible
from stages.training.examples import Split, load_examples
from stages.training.loop import train_step
from tests.benchmarks.subjects.pruning_experiments import prune_experiment

CUT = 0.05  # of a group's channels
BATCHES = 12
TRUE_EXAMPLES = 2000


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def validation_loss(run: PruningRun, masks: list[torch.Tensor], split: Split) -> float:
    run.net.eval()
    with torch.no_grad():
        losses = [
            float(F.cross_entropy(folded_forward(run.net, run.channels, masks, channels_last(x)), y, reduction="sum"))
            for x, y in zip(split.x.split(500), split.y.split(500), strict=True)
        ]
    run.net.train()
    return sum(losses) / len(split)


def true_slopes(run: PruningRun, split: Split) -> np.ndarray:
    """By how much the loss falls per unit of pi, group by group."""
    assert run.pruning is not None
    masks, salience = run.pruning.state.masks, saliences(run.net, run.channels)
    now, slopes = validation_loss(run, masks, split), []
    for group, mask in enumerate(masks):
        left = int(mask.sum())
        cut = min(max(1, round(CUT * len(mask))), left - 1)
        narrower = list(masks)
        narrower[group] = top_masks([salience[group]], [left - cut])[0]
        slopes.append((now - validation_loss(run, narrower, split)) / (cut / len(mask)))
    return np.array(slopes)


def batch_slopes(run: PruningRun, split: Split, size: int, slope: str) -> np.ndarray:
    """Gradients of several validation batches, one row each."""
    assert run.pruning is not None
    draw = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(BATCHES):
        chosen = torch.randperm(len(split), generator=draw)[:size]
        batch = channels_last(split.x[chosen]), split.y[chosen]
        rows.append(task_loss(run.net, run.channels, run.pruning.state.masks, batch, slope).gradient)
    return np.array(rows)


def report(run: PruningRun, split: Split, config: PruneConfig) -> str:
    """The table at one update."""
    pruning = run.pruning
    assert pruning is not None
    violated = pruning.objectives.exceeded(pruning.widths())
    resource = max((pruning.resource_loss(name) for name in violated), key=lambda found: found.loss)
    cap = config.gradient_cap
    pull = resource.gradient * cap / resource.gradient[resource.gradient > 0].mean()
    truth = true_slopes(run, split)
    found = {slope: batch_slopes(run, split, config.validation_batch, slope) for slope in ("tangent", "secant")}
    lines = [
        f"update {pruning.state.updates + 1}, step {run.step}, widths {pruning.widths()}, {resource.objectives[0]}",
        f"{'group':>5} {'true':>9} {'tangent':>9} {'sd':>8} {'secant':>9} {'sd':>8} {'resource':>9}",
    ]
    for group in range(len(truth)):
        cells = [f"{values[:, group].mean():9.4f} {values[:, group].std():8.4f}" for values in found.values()]
        lines.append(f"{group:>5} {truth[group]:9.4f} {' '.join(cells)} {pull[group]:9.4f}")
    for slope, values in found.items():
        single = np.mean([correlation(row, truth) for row in values])
        first = cap * config.task_weight / np.abs(values).mean()
        scaled = np.minimum(values.mean(0), 0) * first / cap
        lines.append(
            f"{slope}: correlation with true {correlation(values.mean(0), truth):5.2f} (one batch {single:5.2f}), "
            f"positive in {100 * (values > 0).mean():.0f} %, by first_gradients {np.round(scaled, 2)} caps"
        )
    task = F.cross_entropy(run.forward(channels_last(split.x[:500])), split.y[:500])
    alpha = (
        cap
        / resource.gradient[resource.gradient > 0].mean()
        * config.task_weight
        * resource.loss
        / float(task.detach())
    )
    by_losses = np.minimum(found["tangent"].mean(0), 0) * alpha / cap
    return "\n".join([*lines, f"tangent by initial_losses, set now: {np.round(by_losses, 3)} caps"]) + "\n"


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--experiment", default="kws_dscnn_s")
    parser.add_argument("--updates", default="1,8,16,24")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args()
    experiment = prune_experiment(given.experiment, given.settings)
    config = PruneConfig(**{**experiment.prune.model_dump(), "threads": 1, "early_termination": False})
    classes = len(json.loads((given.data / "dataset.json").read_text())["classes"])
    task = Task(load_examples(given.data / "features", classes), experiment.network, experiment.budget, config)
    wanted = {int(number) for number in given.updates.split(",")}
    validation = task.examples.validation
    some = torch.randperm(len(validation), generator=torch.Generator().manual_seed(2))[:TRUE_EXAMPLES]
    split = Split(validation.x[some], validation.y[some])
    with reproducible(1):
        run, epoch = started(task), 0
        while True:
            for x, y in task.batches(epoch):
                train_step(task.recipe, run, x, y)
                assert run.pruning is not None
                pace = run.pruning.config
                if run.step >= pace.start_step and run.step % pace.update_every == 0:
                    if run.pruning.state.reached or run.pruning.state.updates >= max(wanted):
                        return 0
                    if run.pruning.state.updates + 1 in wanted:
                        sys.stdout.write(report(run, split, config) + "\n")
                        sys.stdout.flush()
                    run.update_widths(0.0)
            epoch += 1


if __name__ == "__main__":
    sys.exit(main())
