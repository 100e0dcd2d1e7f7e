"""What a training will cost, told before it starts."""

from __future__ import annotations

import json
from pathlib import Path

from stages.nets.config import NetworkConfig
from stages.prune.config import PruneConfig
from stages.qat.config import QatConfig
from stages.tools.training.cost import training_cost
from stages.training.config import PLAIN, TrainingConfig

SECTIONS = {
    "prune": PruneConfig(epochs=3, batch=10, threads=1),
    "qat": QatConfig(epochs=2, batch=16),
    "network": NetworkConfig(width=8, blocks=1),
    "training": PLAIN,
}


def prepared(folder: Path) -> dict[str, Path]:
    (folder / "features").mkdir()
    (folder / "features" / "train_x.npy").write_bytes(b"x" * 1234)
    counts = {"train": {"a": 40, "b": 45}, "validation": {"a": 5, "b": 5}, "test": {"a": 4, "b": 6}}
    record = {"classes": ["a", "b"], "counts": counts, "shapes": {"train": [85, 12, 6, 1]}}
    (folder / "dataset.json").write_text(json.dumps(record))
    return {"dataset": folder / "dataset.json", "features": folder / "features"}


def test_examples_steps_macs_time_and_disk_are_told_and_steps_timed_once(tmp_path):
    artifacts = prepared(tmp_path)
    first = training_cost(SECTIONS, artifacts, tmp_path / "cache")
    assert first.record["examples"] == {"train": 85, "validation": 10, "test": 10}
    assert (first.record["prune_steps"], first.record["qat_steps"]) == (3 * 8, 2 * 6)
    macs = 12 * 6 * 8 * 40 + 6 * 3 * 8 * (9 + 8) + 6 * 3 * 8 + 8 * 2  # stem, block, pooling, classifier
    assert first.record["macs"] == 3 * macs * 85 * 5
    assert first.record["prune_s"] > 0 and first.record["qat_s"] > 0 and first.record["disk_bytes"] == 1234
    assert "85 examples, prune 24 steps in" in first.text
    again = training_cost(SECTIONS, artifacts, tmp_path / "cache")
    assert again.record == first.record, "a second look takes no time of its own"


def test_an_epoch_that_leaves_examples_out_costs_less(tmp_path):
    artifacts = prepared(tmp_path)
    told = json.loads(artifacts["dataset"].read_text())
    told["counts"]["train"] = {"a": 20, "b": 65}
    artifacts["dataset"].write_text(json.dumps(told))
    sections = {**SECTIONS, "training": TrainingConfig(class_share=0.6)}
    found = training_cost(sections, artifacts, tmp_path / "cache").record
    assert found["examples"]["train"] == 85
    assert (found["prune_steps"], found["qat_steps"]) == (3 * 5, 2 * 4)  # of 50


def test_before_there_are_data_it_says_so(tmp_path):
    assert training_cost(SECTIONS, {}, tmp_path).text == "cost of training: known once prepare has run"
