"""history.csv, one row per epoch."""

from __future__ import annotations

from stages.training.history import write_history


def test_every_epoch_has_its_loss_and_accuracy(tmp_path):
    path = write_history(tmp_path / "history.csv", [2.5, 1.25], [0.5, 0.75])
    assert path.read_text() == "epoch,loss,validation_accuracy\n1,2.5,0.5\n2,1.25,0.75\n"


def test_no_epoch_leaves_the_header(tmp_path):
    assert write_history(tmp_path / "history.csv", [], []).read_text() == "epoch,loss,validation_accuracy\n"
