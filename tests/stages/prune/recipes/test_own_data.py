"""A folder of one's own and a budget: nothing else has to be said about shape, classes or kind of data."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import read_architecture
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.stage import Prepared
from stages.prepare.stage import run as prepare
from stages.prune.config import PruneConfig
from stages.prune.task import Task
from stages.training.examples import load_examples
from tests.stages.prune.prune_runs import Silent, metrics_of, prune

CLASSES = ("high", "low", "middle")


def pictures(root: Path) -> None:
    draw = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(60):
            pixels = draw.integers(0, 80, (16, 16, 3), dtype=np.uint8)
            pixels[..., label] += 120
            Image.fromarray(pixels).save(root / name / f"{i}.png")


def clips(root: Path) -> None:
    time_s = np.arange(16_000) / 16_000
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(60):
            with wave.open(str(root / name / f"{i}.wav"), "wb") as file:
                file.setparams((1, 2, 16_000, 0, "NONE", ""))
                tone = 8000 * np.sin(2 * np.pi * (400 * 3**label + 10 * i) * time_s)
                file.writeframes(tone.astype("<i2").tobytes())


def prepared(folder: Path) -> Prepared:
    out_dir = folder / "prepared"
    out_dir.mkdir()
    data = DataConfig(source="folder", root=folder / "own")
    return prepare.function(config=PrepareConfig(), data=data, out_dir=out_dir, progress=Silent())


@pytest.mark.parametrize(
    "write, network, shape, name, budget",
    [
        (pictures, NetworkConfig(), (16, 16, 3), "mobilenet_v1", {"size_bytes": "150KB"}),
        (clips, NetworkConfig(width=12, blocks=1), (49, 10, 1), "dscnn", {"macs": "90K"}),
    ],
)
def test_the_data_alone_say_what_the_network_is_made_for(write, network, shape, name, budget, tmp_path):
    write(tmp_path / "own")
    made = prepared(tmp_path)
    assert (made.features / "augmentation.json").exists(), "examples of one's own are made anew in every epoch"
    settings = {"epochs": 2, "batch": 20, "update_every": 1, "start_step": 1, "rate": 40.0}
    prune(made.dataset.parent, tmp_path / "out", network=network, budget=BudgetConfig(**budget), **settings)
    found = read_architecture(tmp_path / "out" / "architecture.json").network
    assert (found.name, found.input_shape, found.classes) == (name, shape, 3)
    assert metrics_of(tmp_path / "out")["fits"]


@pytest.mark.parametrize("are_pictures", [True, False])
def test_the_augmentation_of_sounds_is_for_sounds(data, are_pictures):
    examples = load_examples(data / "features", 3, are_pictures=are_pictures)
    task = Task(examples, NetworkConfig(width=8), BudgetConfig(macs="1M"), PruneConfig(batch=40))
    first, _ = next(iter(task.batches(0)))
    known = {row.numpy().tobytes() for row in examples.train.x[:].flatten(1)}
    seen = [row.numpy().tobytes() in known for row in first.flatten(1)]
    assert torch.equal(torch.tensor(seen), torch.full((40,), are_pictures))
