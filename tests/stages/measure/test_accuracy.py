"""Accuracy on the device: which inputs are sent, and what is made of the answers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.measure.accuracy import NOT_MEASURED, Difference, TestInputs, choose_inputs, compared, quantised

LABELS = np.array([0, 1, 2, 1])
CHOSEN = TestInputs(np.array([3, 5, 7, 9]), np.zeros((4, 1, 1, 1), np.int8), LABELS)
HOST = np.array([[9, 1, 0], [0, 9, 1], [0, 9, 1], [2, 9, 0]], np.int8)


def test_equal_outputs_have_the_accuracy_of_the_host_and_no_difference() -> None:
    found = compared(HOST.copy(), HOST, CHOSEN)
    assert (found.n, found.accuracy_device, found.accuracy_host, found.agreement) == (4, 0.75, 0.75, 1.0)
    assert (found.outputs_equal, found.differences) == (4, ())


def test_every_difference_is_listed_with_its_size_and_both_answers() -> None:
    device = HOST.copy()
    device[1] = [10, 9, 1]  # another class
    device[3, 2] = -100  # the same class
    found = compared(device, HOST, CHOSEN)
    assert (found.accuracy_device, found.accuracy_host, found.agreement, found.outputs_equal) == (0.5, 0.75, 0.75, 2)
    assert found.differences == (Difference(5, 1, 0, 1, 1, 10), Difference(9, 1, 1, 1, 1, 100))


def test_outputs_of_another_length_are_refused() -> None:
    with pytest.raises(StageError, match="outputs of 2 B, needed 3 B"):
        compared(HOST[:, :2], HOST, CHOSEN)


@pytest.mark.parametrize(("count", "indices"), [(1, [0]), (3, [0, 4, 8]), (9, list(range(9))), (99, list(range(9)))])
def test_inputs_are_spread_over_the_test_split(count: int, indices: list[int], flashed) -> None:
    chosen = choose_inputs(flashed.features, flashed.graph, count)
    assert chosen.indices.tolist() == indices
    x = np.load(flashed.features / "test_x.npy")[indices]
    # The network's input has scale 0.05 and zero point -3.
    np.testing.assert_array_equal(chosen.inputs, np.clip(np.round(x / np.float32(0.05)) - 3, -128, 127))
    assert chosen.labels.tolist() == np.load(flashed.features / "test_y.npy")[indices].tolist()


@pytest.mark.parametrize(("inputs", "labels"), [(0, 0), (2, 3), (3, 2)])
def test_a_test_split_without_inputs_or_with_other_labels_is_refused(
    inputs: int, labels: int, flashed, tmp_path: Path
) -> None:
    np.save(tmp_path / "test_x.npy", np.zeros((inputs, 6, 6, 1), np.float32))
    np.save(tmp_path / "test_y.npy", np.zeros(labels, np.int64))
    with pytest.raises(StageError, match=rf"test split has \({inputs}, 6, 6, 1\), needed"):
        choose_inputs(tmp_path, flashed.graph, 1)


def test_a_test_split_of_one_input_will_do(flashed, tmp_path: Path) -> None:
    np.save(tmp_path / "test_x.npy", np.zeros((1, 6, 6, 1), np.float32))
    np.save(tmp_path / "test_y.npy", np.array([2]))
    assert choose_inputs(tmp_path, flashed.graph, 5).labels.tolist() == [2]


def test_inputs_that_are_quantised_already_stay_as_they_are(flashed) -> None:
    features = np.arange(-36, 36, dtype=np.int8).reshape(2, 36)
    np.testing.assert_array_equal(quantised(features, flashed.graph), features.reshape(2, 6, 6, 1))
    beyond = quantised(np.array([[-100.0, 100.0] * 18], np.float32), flashed.graph)
    assert sorted(set(beyond.flat)) == [-128, 127]


def test_what_was_not_measured_is_empty() -> None:
    assert asdict(NOT_MEASURED) == {
        **{"n": 0, "accuracy_device": None, "accuracy_host": None, "agreement": None},
        **{"outputs_equal": 0, "differences": ()},
    }


def test_features_of_another_network_are_refused(flashed, tmp_path: Path) -> None:
    np.save(tmp_path / "test_x.npy", np.zeros((2, 3, 3, 1), np.float32))
    np.save(tmp_path / "test_y.npy", np.zeros(2, np.int64))
    with pytest.raises(StageError, match=r"test split has \(2, 3, 3, 1\), needed \(N, \*\(6, 6, 1\)\)"):
        choose_inputs(tmp_path, flashed.graph, 1)
    with pytest.raises(StageError, match="test_x.npy: not readable as an array .*; run the prepare step again"):
        choose_inputs(tmp_path / "nowhere", flashed.graph, 1)
