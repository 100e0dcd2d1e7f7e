"""Train, prune and fine-tune on the CPU and on another device, and compare: a program of its own.

Torch counts the devices when it first differentiates anything, so the other one has to be there before.

    python -m tests.stages.prune.recipes.other_device_run DATA WORK plain|recipe
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.task import Task
from stages.prune.training import train, write_network
from stages.qat.config import QatConfig
from stages.qat.quantised_network import fake_quant_network, measured, save_quantised
from stages.qat.training import Tuning
from stages.qat.training import train as fine_tune
from stages.training.config import TrainingConfig
from stages.training.examples import load_examples
from tests.stages.prune.prune_runs import BUDGET, NETWORK, QUICK, Silent
from tests.stages.training.other_device import OtherTensor, other_device

RESIDUAL = NETWORK.model_copy(update={"name": "res8", "width": 8, "blocks": None})
RECIPE = TrainingConfig(average=0.9, mixup=0.3, cutmix=0.3, stochastic_depth=0.3)


def on(device, data, folder, network, budget, training, die_after=None):
    task = Task(load_examples(data / "features", 3), network, budget, PruneConfig(**(QUICK | {"epochs": 3})), training)
    task.__dict__["device"] = device
    return train(task, Silent(die_after), Checkpoint(folder))


RANGES = {"plain": "learned", "recipe": "percentile"}
CASES = {
    "plain": (NETWORK, BUDGET, TrainingConfig()),
    "recipe": (RESIDUAL, BudgetConfig(size_bytes="2KB"), RECIPE),
}


def main(data: Path, tmp_path: Path, case: str) -> None:
    there_device = other_device()
    network, budget, training = CASES[case]
    here = on(torch.device("cpu"), data, tmp_path / "here", network, budget, training)
    with pytest.raises(KeyboardInterrupt):
        on(there_device, data, tmp_path / "there", network, budget, training, die_after=2)
    there = on(there_device, data, tmp_path / "there", network, budget, training)
    assert all(isinstance(parameter, OtherTensor) for parameter in there.net.parameters())
    assert there.architecture.widths == here.architecture.widths
    for name, value in here.net.state_dict().items():
        assert torch.allclose(value.double(), there.net.state_dict()[name].cpu().double(), atol=1e-5), name
    weights = write_network(tmp_path / "network.pt", there.net)
    assert all(value.device.type == "cpu" for value in torch.load(weights, weights_only=True).values())

    examples, found = load_examples(data / "features", 3), {}
    for device in (torch.device("cpu"), there_device):
        config = QatConfig(epochs=2, batch=16, learning_rate=0.01, threads=1, ranges=RANGES[case], bias_correction=True)
        net = fake_quant_network(there.architecture, weights, config).to(device)
        before = measured(net, examples, quantises=False)
        recipe = TrainingConfig(average=0.5)
        tuned = fine_tune(Tuning(net, examples, config, recipe), Silent(), Checkpoint(tmp_path / f"qat_{device.type}"))
        after = measured(tuned.net, examples, quantises=True)
        file = save_quantised(tmp_path / f"{device.type}.pt", tuned.net, before, after)
        found[device.type] = (tuned.losses, after.accuracies, torch.load(file, weights_only=True)["test_classes"])
    (losses, accuracies, classes), (other_losses, other_accuracies, other_classes) = found.values()
    assert other_losses == pytest.approx(losses, abs=1e-4) and other_accuracies == pytest.approx(accuracies, abs=0.05)
    assert other_classes["float"].tolist() == classes["float"].tolist()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
