"""The prune step on tiny data: its files, its repeatability, its switches."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from pipeline.stage import Checkpoint
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources
from stages.nets.config import BudgetConfig
from stages.nets.registry import read_architecture
from stages.prune.stage import run
from stages.training.loop import CHECKPOINT_FORMAT
from tests.stages.prune.prune_runs import (
    NETWORK,
    DyingCheckpoint,
    Silent,
    file_bytes,
    metrics_of,
    prune,
    trajectory_of,
)


def test_the_small_network_fits_and_has_learned(undisturbed, data):
    metrics = json.loads((undisturbed / "metrics.json").read_text())
    net = read_architecture(undisturbed / "architecture.json").build()
    net.load_state_dict(torch.load(undisturbed / "network.pt", weights_only=True))
    used = resources(graph_from_torch(net, (12, 6, 1)))
    assert metrics["after"] == {
        "size_bytes": used.size_bytes,
        "peak_bytes": used.peak_bytes,
        "peak_bytes_imprecise": used.peak_bytes_imprecise,
        "macs": used.macs,
    }
    assert metrics["fits"] is True
    assert used.size_bytes <= 1000 and used.peak_bytes <= 950 and used.macs <= 60_000
    x = torch.from_numpy(np.load(data / "features" / "test_x.npy")).permute(0, 3, 1, 2)
    right = net.eval()(x).argmax(1).numpy() == np.load(data / "features" / "test_y.npy")
    assert metrics["test_accuracy"] == pytest.approx(right.mean()) and right.mean() > 0.8
    assert metrics["before"]["size_bytes"] == resources(graph_from_torch(_unpruned(), (12, 6, 1))).size_bytes
    assert 0.3 < metrics["macs_trained_relative"] < 1.0


def _unpruned():
    from stages.nets.registry import build

    return build(NETWORK)


def test_the_trajectory_goes_from_the_whole_network_to_the_end_of_training(undisturbed):
    rows, updates = trajectory_of(undisturbed)
    metrics = metrics_of(undisturbed)
    first, last = rows[0], rows[-1]
    assert (first["step"], first["update"], first["train_loss"]) == ("0", "0", "")
    assert int(first["macs"]) == metrics["before"]["macs"] and int(last["macs"]) == metrics["after"]["macs"]
    epochs = rows[1 + len(updates) :]  # steps of an epoch: 8
    assert [int(row["step"]) for row in epochs] == list(range(int(epochs[0]["step"]), 65, 8)) and len(epochs) > 2
    assert all(float(row["train_loss"]) > 0 and row["update"] == updates[-1]["update"] for row in epochs)
    assert metrics["updates"] == len(updates)


def test_the_trajectory_falls_to_the_budgets(undisturbed):
    _, rows = trajectory_of(undisturbed)
    assert list(rows[0]) == [
        "step", "update", "objective", "width_stem", "width_blocks.0.pointwise", "width_blocks.1.pointwise",
        "size_bytes", "peak_bytes", "macs", "train_loss", "task_loss", "resource_loss", "masks_changed",
        "peak_bytes_imprecise", "task_pull", "resource_pull",
    ]  # fmt: skip
    assert [int(row["step"]) for row in rows] == [2 * n for n in range(1, len(rows) + 1)]
    assert [int(row["update"]) for row in rows] == list(range(1, len(rows) + 1))
    sizes = [int(row["size_bytes"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 1000 >= sizes[-1]
    widths = json.loads((undisturbed / "architecture.json").read_text())["widths"]
    assert [int(rows[-1][f"width_{name}"]) for name in ("stem", "blocks.0.pointwise", "blocks.1.pointwise")] == widths
    assert rows[0]["task_loss"] != "" and rows[-1]["task_loss"] == ""


def test_the_layers_add_up_to_the_network_before_and_after(undisturbed):
    rows = list(csv.DictReader((undisturbed / "layers.csv").read_text().splitlines()))
    metrics = json.loads((undisturbed / "metrics.json").read_text())
    for when in ("before", "after"):
        used = metrics[when]
        assert sum(int(row[f"macs_{when}"]) for row in rows) == used["macs"]
        assert sum(int(row[f"size_bytes_{when}"]) for row in rows) == used["size_bytes"]
        assert max(int(row[f"memory_bytes_{when}"]) for row in rows) == used["peak_bytes"]
    assert [row["channels_before"] for row in rows[:2]] == ["16", "16"]
    assert [int(row["channels_after"]) for row in rows[:2]] == [metrics["widths"][0]] * 2
    assert (rows[0]["op"], rows[0]["name"]) == ("CONV_2D", "stem")


def test_the_same_inputs_give_the_same_bytes(undisturbed, data, tmp_path):
    torch.manual_seed(12345)  # the state of torch's own generator must not matter
    threads = torch.get_num_threads()
    prune(data, tmp_path / "out")
    assert file_bytes(tmp_path / "out") == file_bytes(undisturbed)
    assert torch.get_num_threads() == threads and not torch.are_deterministic_algorithms_enabled()


def test_two_threads_give_the_same_bytes_every_time(data, tmp_path):
    roomy = BudgetConfig(peak_bytes="1MB", size_bytes="1MB", macs="1G")
    for name in ("first", "second"):
        prune(data, tmp_path / name, budget=roomy, threads=2, batch=40, epochs=3)
    assert file_bytes(tmp_path / "first") == file_bytes(tmp_path / "second")


def test_another_seed_gives_other_weights(undisturbed, data, tmp_path):
    prune(data, tmp_path / "out", seed=1)
    assert file_bytes(tmp_path / "out")["network.pt"] != file_bytes(undisturbed)["network.pt"]


def test_some_checkpoints_lie_before_the_shrink_and_some_after(data, tmp_path):
    shrunk = []
    for epochs in range(1, 8):
        checkpoint = Checkpoint(tmp_path / f"checkpoint{epochs}")
        with pytest.raises(KeyboardInterrupt):
            prune(data, tmp_path / f"out{epochs}", progress=Silent(die_after=epochs), checkpoint=checkpoint)
        shrunk.append(torch.load(checkpoint.saved(), weights_only=True)["own"]["pruner"]["pruning"] is None)
    assert shrunk[0] is False and shrunk[-1] is True and shrunk == sorted(shrunk)


@pytest.mark.parametrize("epochs", range(1, 8))
def test_a_run_killed_after_any_epoch_ends_with_the_same_bytes(undisturbed, data, tmp_path, epochs):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "out", progress=Silent(die_after=epochs), checkpoint=checkpoint)
    progress = Silent()
    prune(data, tmp_path / "out", progress=progress, checkpoint=checkpoint)
    assert file_bytes(tmp_path / "out") == file_bytes(undisturbed)
    assert (progress.notes[0], progress.done, progress.total) == ("resumed", 8, 8)


@pytest.mark.parametrize("save", [1, 3, 6])
def test_a_run_killed_before_its_checkpoint_is_written_ends_with_the_same_bytes(undisturbed, data, tmp_path, save):
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "out", checkpoint=DyingCheckpoint(tmp_path / "checkpoint", save))
    prune(data, tmp_path / "out", checkpoint=Checkpoint(tmp_path / "checkpoint"))
    assert file_bytes(tmp_path / "out") == file_bytes(undisturbed)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "foreign", "other format", "other widths", "flipped bit"])
def test_an_unreadable_checkpoint_is_dropped_and_training_starts_anew(undisturbed, data, tmp_path, damage):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "out", progress=Silent(die_after=2), checkpoint=checkpoint)
    stored = checkpoint.saved()
    content, state = stored.read_bytes(), torch.load(stored, weights_only=True)
    damages = {
        "garbage": b"no checkpoint at all",
        "truncated": content[: len(content) // 2],
        "foreign": {"format": CHECKPOINT_FORMAT},
        "other format": state | {"format": 0},
        "other widths": state | {"own": state["own"] | {"pruner": state["own"]["pruner"] | {"net_widths": (1,)}}},
    }
    if damage == "flipped bit":  # among the weights, where torch does not look
        middle = len(content) // 2
        stored.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif isinstance(damages[damage], bytes):
        checkpoint.save(lambda path: path.write_bytes(damages[damage]))
    else:
        checkpoint.save(lambda path: torch.save(damages[damage], path))
    progress = Silent()
    prune(data, tmp_path / "out", progress=progress, checkpoint=checkpoint)
    assert "resumed" not in progress.notes
    assert file_bytes(tmp_path / "out") == file_bytes(undisturbed)


def test_progress_counts_epochs_and_tells_loss_and_accuracy(data, tmp_path):
    progress = Silent()
    prune(data, tmp_path / "out", progress=progress)
    assert (progress.total, progress.unit, progress.done) == (8, "epoch", 8)
    assert progress.notes[-1].startswith("loss 0.") and progress.notes[-1].endswith(" %")


def test_a_budget_for_one_resource_leaves_the_others_alone(data, tmp_path):
    prune(data, tmp_path / "out", budget=BudgetConfig(macs="60K"))
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["budget"] == {"macs": 60_000} and metrics["fits"]
    assert metrics["after"]["macs"] <= 60_000 < metrics["before"]["macs"]


def test_one_channel_is_enough_also_for_depthwise_layers(data, tmp_path):
    prune(data, tmp_path / "out", budget=BudgetConfig(size_bytes="130B"), min_channels=1, rate=60.0, losses="resource")
    metrics = metrics_of(tmp_path / "out")
    assert 1 in metrics["widths"] and metrics["fits"]
    layers = list(csv.DictReader((tmp_path / "out" / "layers.csv").read_text().splitlines()))
    assert [row["channels_after"] for row in layers if row["op"] == "DEPTHWISE_CONV_2D"] == [
        str(width) for width in metrics["widths"][:2]
    ]


def test_metrics_are_those_of_the_runtime_that_the_budget_is_for(data, tmp_path):
    budget = BudgetConfig(peak_bytes="700B", runtime="overlap")
    prune(data, tmp_path / "out", budget=budget)
    metrics = metrics_of(tmp_path / "out")
    graph = graph_from_torch(read_architecture(tmp_path / "out" / "architecture.json").build(), NETWORK.input_shape)
    assert metrics["fits"] is True
    assert metrics["after"]["peak_bytes"] == resources(graph, "overlap").peak_bytes <= 700 < resources(graph).peak_bytes
    rows, _ = trajectory_of(tmp_path / "out")
    assert int(rows[0]["peak_bytes"]) == metrics["before"]["peak_bytes"]
    assert int(rows[-1]["peak_bytes"]) == metrics["after"]["peak_bytes"]
    layers = list(csv.DictReader((tmp_path / "out" / "layers.csv").read_text().splitlines()))
    for when in ("before", "after"):
        assert max(int(row[f"memory_bytes_{when}"]) for row in layers) == metrics[when]["peak_bytes"]


def test_the_computation_spent_is_that_of_every_step_and_every_task_loss(undisturbed):
    _, rows = trajectory_of(undisturbed)
    metrics = json.loads((undisturbed / "metrics.json").read_text())
    before, after = metrics["before"]["macs"], metrics["after"]["macs"]
    shrunk_at, task_losses = int(rows[-1]["step"]), sum(row["task_loss"] != "" for row in rows)
    assert 0 < shrunk_at < 64 and task_losses > 3
    spent = 10 * (shrunk_at * before + task_losses * before + (64 - shrunk_at) * after)
    assert metrics["macs_trained_relative"] == pytest.approx(spent / (10 * 64 * before))


@pytest.mark.parametrize("settle", [0, 2])
def test_the_network_is_shrunk_as_many_updates_after_the_budgets_hold_as_configured(data, tmp_path, settle):
    prune(data, tmp_path / "out", settle_updates=settle)
    _, rows = trajectory_of(tmp_path / "out")
    assert [row["objective"] for row in rows].count("none") == settle


def test_declaring_the_step_imports_nothing_heavy():
    code = "import sys, stages.prune.stage; print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert run.sections.keys() == {"prune", "network", "budget", "training"}
    assert list(run.artifacts) == ["features", "dataset"]


@pytest.mark.parametrize(
    "settings",
    [{"objectives": ("macs",)}, {"losses": "task", "rate": 0.01}, {"missed_budgets": "report", "rate": 0.01}],
)
def test_a_study_that_misses_a_budget_says_so_and_goes_on(data, tmp_path, settings):
    budget = BudgetConfig(peak_bytes="500B", size_bytes="1000B", macs="60K")
    prune(data, tmp_path / "out", budget=budget, **settings)
    metrics = metrics_of(tmp_path / "out")
    assert metrics["fits"] is False and metrics["after"]["peak_bytes"] > 500
    assert metrics["widths"] == json.loads((tmp_path / "out" / "architecture.json").read_text())["widths"]


def test_uniform_scaling_trains_the_small_network_from_the_start(data, tmp_path):
    prune(data, tmp_path / "out", method="uniform")
    metrics = metrics_of(tmp_path / "out")
    assert metrics["fits"] is True and metrics["updates"] == 0 and len(set(metrics["widths"])) == 1
    assert metrics["macs_trained_relative"] == pytest.approx(metrics["after"]["macs"] / metrics["before"]["macs"])
    rows, updates = trajectory_of(tmp_path / "out")
    assert not updates and {int(row["macs"]) for row in rows} == {metrics["after"]["macs"]}
    assert [int(row["step"]) for row in rows] == list(range(0, 65, 8))


def test_a_uniform_run_that_was_killed_ends_with_the_same_bytes(data, tmp_path):
    prune(data, tmp_path / "whole", method="uniform")
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "out", progress=Silent(die_after=3), checkpoint=checkpoint, method="uniform")
    prune(data, tmp_path / "out", checkpoint=checkpoint, method="uniform")
    assert file_bytes(tmp_path / "out") == file_bytes(tmp_path / "whole")


def test_live_masks_move_until_the_end_and_cost_the_whole_training(data, tmp_path, undisturbed):
    prune(data, tmp_path / "out", early_termination=False)
    rows = list(csv.DictReader((tmp_path / "out" / "trajectory.csv").read_text().splitlines()))
    assert int(rows[-1]["step"]) == 64 and rows[-1]["objective"] == "none"
    metrics = metrics_of(tmp_path / "out")
    assert metrics["fits"] is True
    assert metrics["macs_trained_relative"] > 1.0 > metrics_of(undisturbed)["macs_trained_relative"]


def test_a_late_start_leaves_the_network_whole_until_then(data, tmp_path):
    prune(data, tmp_path / "out", start_step=30)
    _, rows = trajectory_of(tmp_path / "out")
    assert int(rows[0]["step"]) == 30


def test_a_training_too_short_for_the_usual_pace_says_at_once_what_it_does_instead(data, tmp_path):
    progress = Silent(die_after=1)
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "out", progress=progress, update_every=None)
    pace, _ = progress.notes
    assert pace.startswith("short training, faster pruning: widths updated every ") and pace.endswith("(usually 20)")
    progress = Silent(die_after=1)
    with pytest.raises(KeyboardInterrupt):
        prune(data, tmp_path / "given", progress=progress)
    assert len(progress.notes) == 1
