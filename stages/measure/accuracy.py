"""Accuracy on the device: test inputs go over the link; what comes back is compared with the labels and with the host.

The host is TensorFlow Lite Micro's reference kernels. A difference is no failure here: all of them are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.examples.stored import stored_labels, stored_split
from hil.link.device_link import DeviceLink
from pipeline.errors import StageError
from pipeline.stage import Progress
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm
from stages.measure.input_form import InputForm


@dataclass(frozen=True)
class Difference:
    """An input for which device and host give different bytes."""

    index: int  # in the test split
    label: int
    device_class: int
    host_class: int
    bytes_different: int
    largest_difference: int  # in units of the output's last place


@dataclass(frozen=True, kw_only=True)
class DeviceAccuracy:
    """The contents of accuracy_device.json; shares of 1, None when nothing was asked for."""

    n: int
    accuracy_device: float | None
    accuracy_host: float | None
    agreement: float | None  # how often both choose the same class
    outputs_equal: int  # bit for bit
    differences: tuple[Difference, ...]


@dataclass(frozen=True, eq=False)
class TestInputs:
    """Some of the test split, quantised as the network's input."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    indices: np.ndarray
    inputs: np.ndarray  # (N, H, W, C) int8
    labels: np.ndarray


def choose_inputs(features: Path, graph: Graph, count: int) -> TestInputs:
    """`count` inputs evenly spread over the test split, or all of it if it is smaller."""
    x, labels = stored_split(features, "test"), stored_labels(features, "test")
    source = graph.tensors[graph.inputs[0]]
    if len(x) == 0 or len(x) != len(labels) or np.prod(x.shape[1:]) != source.elements:
        raise StageError(f"{features}: test split has {x.shape}, needed (N, *{source.shape[1:]}); run prepare again")
    indices = np.unique(np.linspace(0, len(x) - 1, min(count, len(x))).round().astype(np.int64))
    return TestInputs(indices, quantised(x[indices], graph), labels[indices])


def quantised(features: np.ndarray, graph: Graph) -> np.ndarray:
    """Float features as the network's int8 input; in single precision, as the export step rounds them."""
    source = graph.tensors[graph.inputs[0]]
    if features.dtype == np.int8:  # brought along: quantised already
        return features.reshape(-1, *source.shape[1:])
    assert source.quantisation is not None
    scale, zero_point = np.float32(source.quantisation.scale[0]), source.quantisation.zero_point[0]
    steps = np.round(np.asarray(features, np.float32) / scale) + zero_point
    return np.clip(steps, -128, 127).astype(np.int8).reshape(-1, *source.shape[1:])


def measure_accuracy(
    link: DeviceLink, model: bytes, graph: Graph, chosen: TestInputs, form: InputForm, progress: Progress
) -> DeviceAccuracy:
    """Run all of them on the device and on the host."""
    progress.start(len(chosen.inputs), "test input")
    outputs = []
    for one in form.sent(chosen.inputs):
        outputs.append(np.frombuffer(link.outputs_of(one.tobytes()), np.int8))
        progress.advance()
    host = run_tflm(model, graph, chosen.inputs).reshape(len(outputs), -1)
    return compared(np.stack(outputs), host, chosen)


def compared(device: np.ndarray, host: np.ndarray, chosen: TestInputs) -> DeviceAccuracy:
    """Outputs (N, classes) of both sides."""
    if device.shape != host.shape:
        raise StageError(f"device: outputs of {device.shape[1]} B, needed {host.shape[1]} B; do not use this image")
    by_device, by_host = device.argmax(axis=1), host.argmax(axis=1)
    gaps = np.abs(device.astype(np.int16) - host.astype(np.int16))
    differences = tuple(
        Difference(
            index=int(chosen.indices[at]),
            label=int(chosen.labels[at]),
            device_class=int(by_device[at]),
            host_class=int(by_host[at]),
            bytes_different=int(np.count_nonzero(gaps[at])),
            largest_difference=int(gaps[at].max()),
        )
        for at in np.flatnonzero(gaps.any(axis=1))
    )
    return DeviceAccuracy(
        n=len(device),
        accuracy_device=float(np.mean(by_device == chosen.labels)),
        accuracy_host=float(np.mean(by_host == chosen.labels)),
        agreement=float(np.mean(by_device == by_host)),
        outputs_equal=len(device) - len(differences),
        differences=differences,
    )


NOT_MEASURED = DeviceAccuracy(
    n=0, accuracy_device=None, accuracy_host=None, agreement=None, outputs_equal=0, differences=()
)
