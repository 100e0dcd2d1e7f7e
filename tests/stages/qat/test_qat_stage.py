"""The qat step: it learns, it is repeatable to the byte, and a kill at any epoch changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from pipeline.stage import Checkpoint, read_json
from stages.graph.record import graph_from_record
from stages.qat.config import QatConfig
from stages.qat.stage import Quantised, run
from stages.qat.training import QatRun
from stages.training.examples import load_examples
from tests.stages.qat.small_task import CLASSES, Quiet, SmallTask, small_task

CONFIG = QatConfig(epochs=4, batch=20, learning_rate=2e-2, calibration_samples=60, threads=1)


class Killed(Exception):
    """Stands for kill -9: nothing after it runs."""


class KilledAfter(Quiet):
    """Progress that dies after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def advance(self, count: int = 1, note: str = "") -> None:
        if note:
            self.left -= 1
            if self.left == 0:
                raise Killed


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> SmallTask:
    return small_task(tmp_path_factory.mktemp("task"))


def quantised(task: SmallTask, folder: Path, *, config: QatConfig = CONFIG, progress: Quiet | None = None) -> Quantised:
    out_dir = folder / "out"
    out_dir.mkdir(parents=True, exist_ok=True)
    return run.function(
        task.features,
        task.network,
        task.architecture,
        config=config,
        out_dir=out_dir,
        progress=progress or Quiet(),
        checkpoint=Checkpoint(folder / "checkpoint"),
    )


def contents(result: Quantised) -> tuple[bytes, bytes]:
    return result.qat_network.read_bytes(), result.qat_metrics.read_bytes()


@pytest.fixture(scope="module")
def undisturbed(task: SmallTask, tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    return quantised(task, tmp_path_factory.mktemp("undisturbed"))


def test_training_lowers_the_loss_and_raises_the_accuracy(undisturbed: Quantised) -> None:
    metrics = read_json(undisturbed.qat_metrics)
    assert len(metrics["losses"]) == 4
    assert metrics["losses"][-1] < 0.7 * metrics["losses"][0]
    assert metrics["float"]["test"] < 0.5  # random weights
    assert metrics["fake_quant"]["test"] > 0.9
    assert metrics["fake_quant"]["validation"] > 0.9


def test_the_stored_network_loads_without_running_code_and_has_grids(undisturbed: Quantised) -> None:
    record = torch.load(undisturbed.qat_network, weights_only=True)
    graph = graph_from_record(record["graph"])
    assert graph.ops[-1].kind == "SOFTMAX"
    assert all(t.quantisation is not None for t in graph.tensors if t.data is None)
    assert record["test_classes"]["fake_quant"].shape == (240,)


def test_the_same_inputs_give_the_same_bytes(task: SmallTask, undisturbed: Quantised, tmp_path: Path) -> None:
    assert contents(quantised(task, tmp_path)) == contents(undisturbed)


@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_a_run_killed_after_any_epoch_ends_with_the_same_bytes(
    task: SmallTask, undisturbed: Quantised, tmp_path: Path, epochs: int
) -> None:
    with pytest.raises(Killed):
        quantised(task, tmp_path, progress=KilledAfter(epochs))
    saved = Checkpoint(tmp_path / "checkpoint").saved()
    assert saved is not None
    assert len(torch.load(saved, weights_only=True)["losses"]) == epochs
    assert contents(quantised(task, tmp_path)) == contents(undisturbed)


def test_with_what_augmentation_needs_every_epoch_sees_other_samples(undisturbed: Quantised, tmp_path: Path) -> None:
    task = small_task(tmp_path)
    (task.features / "augmentation.json").write_text('{"kind": "pictures"}')
    assert load_examples(task.features, CLASSES).augment is not None
    fresh = quantised(task, tmp_path / "fresh")
    assert contents(fresh) != contents(undisturbed)
    with pytest.raises(Killed):
        quantised(task, tmp_path / "killed", progress=KilledAfter(2))
    assert contents(quantised(task, tmp_path / "killed")) == contents(fresh)


@pytest.mark.parametrize("damage", ["truncated", "garbage", "foreign", "flipped bit"])
def test_an_unusable_checkpoint_is_dropped(
    task: SmallTask, undisturbed: Quantised, tmp_path: Path, damage: str
) -> None:
    with pytest.raises(Killed):
        quantised(task, tmp_path, progress=KilledAfter(2))
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    saved = checkpoint.saved()
    assert saved is not None
    content = saved.read_bytes()
    if damage == "flipped bit":
        middle = len(content) // 2  # among the weights, where torch does not look
        saved.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "truncated":
        checkpoint.save(lambda path: path.write_bytes(content[:-3000]))
    elif damage == "garbage":
        checkpoint.save(lambda path: path.write_bytes(b"nothing that torch could have written"))
    else:
        foreign = torch.load(saved, weights_only=True) | {"net": {"strange": torch.zeros(3)}}
        checkpoint.save(lambda path: torch.save(foreign, path))
    assert contents(quantised(task, tmp_path)) == contents(undisturbed)


@pytest.mark.parametrize("ranges", ["least_error", "percentile", "learned"])
def test_ranges_differ_by_their_rule_and_a_killed_run_ends_with_the_same_bytes(
    task: SmallTask, undisturbed: Quantised, tmp_path: Path, ranges: str
) -> None:
    config = CONFIG.model_copy(update={"ranges": ranges, "percentile": 99.0, "bias_correction": True})
    whole = quantised(task, tmp_path / "whole", config=config)
    with pytest.raises(Killed):
        quantised(task, tmp_path / "killed", config=config, progress=KilledAfter(2))
    assert contents(quantised(task, tmp_path / "killed", config=config)) == contents(whole)
    usual, other = (
        [t.quantisation.scale for t in graph_from_record(record["graph"]).tensors if t.data is None and t.quantisation]
        for record in (torch.load(result.qat_network, weights_only=True) for result in (undisturbed, whole))
    )
    assert (usual == other) == (ranges == "least_error"), "bias correction moves no range"
    assert read_json(whole.qat_metrics)["fake_quant"]["test"] > 0.9


@pytest.mark.parametrize(
    ("learns", "epochs", "calibrated_in"),
    [(False, 1, [0]), (False, 2, [0]), (False, 4, [0, 1, 2]), (True, 4, [0, 1]), (True, 1, [0])],
)
def test_the_last_of_several_epochs_keeps_its_grids(learns: bool, epochs: int, calibrated_in: list[int]) -> None:
    class Counting(torch.nn.Linear):
        learns_ranges = learns

        def calibrate(self, x: torch.Tensor) -> None:
            seen.append(number)

    seen: list[int] = []
    run = QatRun(net=Counting(1, 1), optimiser=None, calibration=torch.zeros(1), validation=None, epochs=epochs)  # type: ignore[arg-type]
    for number in range(epochs):
        run.epoch = number
        run.begin_epoch()
    assert seen == calibrated_in


def test_the_least_of_everything_is_allowed() -> None:
    least = QatConfig(epochs=0, batch=1, label_smoothing=0, calibration_samples=1, threads=1, seed=0)
    assert least.calibration_samples == 1


def test_no_epochs_means_calibration_only(task: SmallTask, tmp_path: Path) -> None:
    result = quantised(task, tmp_path, config=CONFIG.model_copy(update={"epochs": 0}))
    record = torch.load(result.qat_network, weights_only=True)
    agreement = (record["test_classes"]["float"] == record["test_classes"]["fake_quant"]).double().mean()
    assert agreement > 0.9
    assert read_json(result.qat_metrics)["losses"] == []


@pytest.mark.parametrize("learning_rate", [2e-2, 0.5])  # learns; forgets
def test_the_best_epoch_is_kept_and_a_killed_run_ends_with_the_same_bytes(
    task: SmallTask, tmp_path: Path, learning_rate: float
) -> None:
    config = CONFIG.model_copy(update={"keep": "best", "learning_rate": learning_rate})
    kept = quantised(task, tmp_path / "kept", config=config)
    calibrated = quantised(task, tmp_path / "calibrated", config=CONFIG.model_copy(update={"epochs": 0}))
    rows = kept.qat_history.read_text().splitlines()[1:]
    behind_epochs = [float(row.split(",")[-1]) for row in rows]
    before = read_json(calibrated.qat_metrics)["fake_quant"]["validation"]
    best = read_json(kept.qat_metrics)["fake_quant"]["validation"]
    assert len(rows) == config.epochs and best == pytest.approx(max(before, *behind_epochs), abs=1e-4)
    assert learning_rate != CONFIG.learning_rate or best > before
    with pytest.raises(Killed):
        quantised(task, tmp_path / "killed", config=config, progress=KilledAfter(2))
    resumed = quantised(task, tmp_path / "killed", config=config)
    assert resumed.qat_network.read_bytes() == kept.qat_network.read_bytes()


def test_weights_of_another_network_are_refused(task: SmallTask, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    torch.save({"unknown": torch.zeros(2)}, other)
    wrong = SmallTask(task.features, task.dataset, other, task.architecture)
    with pytest.raises(StageError, match=r"other\.pt: does not fit the architecture .*; run prune again"):
        quantised(wrong, tmp_path)


def test_labels_out_of_range_are_refused(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    np.save(task.features / "train_y.npy", np.full(240, 4))
    with pytest.raises(StageError, match="train has labels 4 to 4, needed 0 to 3"):
        quantised(task, tmp_path)


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    (task.features / "validation_x.npy").unlink()
    with pytest.raises(StageError, match="validation_x.npy: not readable as an array .* run the prepare step again"):
        quantised(task, tmp_path)


@pytest.mark.parametrize("learning_rate", [1e20, 1e30])
def test_a_run_that_diverges_ends_with_a_sentence(task: SmallTask, tmp_path: Path, learning_rate: float) -> None:
    expected = r"qat: (training loss is nan at step \d+|activations from .* have no int8 grid); lower qat.learning_rate"
    with pytest.raises(StageError, match=expected):
        quantised(task, tmp_path, config=CONFIG.model_copy(update={"learning_rate": learning_rate}))


def test_declaring_the_step_imports_nothing_heavy() -> None:
    code = "import sys, stages.qat.stage, stages.export.stage; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
