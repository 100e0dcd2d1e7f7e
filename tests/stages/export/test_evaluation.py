"""Accuracy over a split, counted by hand; and splits that do not belong to the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.export.evaluation import Labelled, int8_classes, load_test_split, measured_accuracy, write_predictions
from stages.graph.graph import Graph
from tests.stages.graph.int8_graphs import Int8Builder

CLASSES = ["a", "b", "c"]


def chooser() -> Graph:
    """Its scores are its inputs."""
    builder = Int8Builder(0)
    x = builder.input(3)
    y = builder.unary("RELU6", x)
    for index in (x, y):
        builder.set_grid(index, 0.05, 0)
    return builder.graph(y)


def test_every_figure_is_what_counting_gives() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    chosen = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    floats = np.array([0, 0, 0, 1, 1, 1, 1, 2])
    fake_quant = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    inputs = (50 * np.eye(3, dtype=np.int8))[chosen]
    found = measured_accuracy(
        int8_classes(chooser(), Labelled(inputs, labels)), Labelled(inputs, labels), CLASSES, floats, fake_quant
    )
    assert (found.n, found.accuracy_int8, found.accuracy_float, found.accuracy_fake_quant) == (8, 5 / 8, 6 / 8, 6 / 8)
    assert (found.agreement_float, found.agreement_fake_quant) == (7 / 8, 7 / 8)
    assert found.per_class == {"a": 3 / 4, "b": 2 / 4, "c": None}
    assert found.confusion == [[3, 1, 0], [0, 2, 2], [0, 0, 0]]
    assert found.gap_points == -12.5
    assert "differs by -12.50 points" in found.warning


@pytest.mark.parametrize(("wrong", "is_warned"), [(1, False), (3, True)])
def test_a_gap_beyond_two_tenths_of_a_point_is_warned_of(wrong: int, is_warned: bool) -> None:
    labels = np.zeros(1000, np.int64)
    fake_quant = np.array([1] * wrong + [0] * (1000 - wrong))
    inputs = np.tile(np.array([[50, 0, 0]], np.int8), (1000, 1))
    found = measured_accuracy(
        int8_classes(chooser(), Labelled(inputs, labels)), Labelled(inputs, labels), CLASSES, labels, fake_quant
    )
    assert bool(found.warning) == is_warned


@pytest.mark.parametrize(("labels", "floats"), [([0, 3], 2), ([-1, 0], 2), ([0, 0], 3)])
def test_labels_and_samples_that_do_not_fit_are_refused(labels: list[int], floats: int) -> None:
    split = Labelled(np.zeros((2, 3), np.int8), np.array(labels))
    with pytest.raises(StageError, match="2 test samples do not belong to this qat.pt and dataset; run qat again"):
        measured_accuracy(int8_classes(chooser(), split), split, CLASSES, np.zeros(floats), np.zeros(2))


def test_the_last_class_and_the_first_are_both_classes() -> None:
    split = Labelled(np.zeros((2, 3), np.int8), np.array([0, 2]))
    assert measured_accuracy(int8_classes(chooser(), split), split, CLASSES, np.zeros(2), np.zeros(2)).n == 2


def test_predictions_name_the_class_and_the_choices_of_every_example(tmp_path: Path) -> None:
    split = Labelled(np.zeros((2, 3), np.int8), np.array([0, 2]))
    path = write_predictions(tmp_path / "predictions.csv", split, np.array([0, 1]), np.array([2, 2]))
    assert path.read_text() == "index,label,int8,float\n0,0,0,2\n1,2,1,2\n"


def saved(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    np.save(folder / "test_x.npy", x)
    np.save(folder / "test_y.npy", y)
    return folder


def test_features_come_onto_the_grid_of_the_input_and_are_clipped_there(tmp_path: Path) -> None:
    x = np.array([[0.0, 0.05, -0.12], [6.35, 100, -100]], np.float64)
    split = load_test_split(saved(tmp_path, x, np.array([1.0, 2.0])), chooser())
    assert np.asarray(split.inputs[:]).tolist() == [[0, 1, -2], [127, 127, -128]]
    assert (split.labels.tolist(), split.labels.dtype) == ([1, 2], np.int64)


@pytest.mark.parametrize(("x", "y"), [((0, 3), 0), ((2, 3), 3), ((2, 4), 2)])
def test_a_split_of_another_shape_is_refused(tmp_path: Path, x: tuple[int, int], y: int) -> None:
    with pytest.raises(StageError, match=r"test split has .*, needed \(N, \*\(3,\)\) and \(N,\)"):
        load_test_split(saved(tmp_path, np.zeros(x), np.zeros(y)), chooser())


def test_a_split_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"test_x.npy: not readable as an array \(.*\); run the prepare step again"):
        load_test_split(tmp_path, chooser())
