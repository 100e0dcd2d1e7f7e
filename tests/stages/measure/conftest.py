"""A small real network, compiled by the real firmware step, with golden outputs from TensorFlow Lite Micro."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline.stage import Target, write_json
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.flash.stage import FlashConfig
from stages.flash.stage import run as flash
from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    Graph,
    NoOptions,
    Op,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.writer import write_tflite

BOARD = "nucleo_f767zi"
SIDE, CHANNELS, CLASSES = 6, 5, 4


@dataclass(frozen=True)
class Flashed:
    """Everything the measure step reads."""

    graph: Graph
    model: Path
    golden: Path
    firmware: Firmware
    flash: Path
    features: Path
    dataset: Path


def small_network() -> Graph:
    """CONV_2D 3x3, RESHAPE, FULLY_CONNECTED, SOFTMAX with random weights."""
    rng = np.random.default_rng(7)
    flat = SIDE * SIDE * CHANNELS

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    def act(name: str, shape: tuple[int, ...], scale: float, zero: int = 0) -> Tensor:
        return Tensor(name, shape, "int8", Quantisation((scale,), (zero,)))

    conv_scales = tuple(0.004 + 0.001 * channel for channel in range(CHANNELS))
    tensors = (
        act("input", (1, SIDE, SIDE, 1), 0.05, -3),
        Tensor(
            "filter",
            (CHANNELS, 3, 3, 1),
            "int8",
            Quantisation(conv_scales, (0,) * CHANNELS, 0),
            weights(CHANNELS, 3, 3, 1),
        ),
        Tensor(
            "bias",
            (CHANNELS,),
            "int32",
            Quantisation(tuple(0.05 * scale for scale in conv_scales), (0,) * CHANNELS, 0),
            rng.integers(-500, 500, CHANNELS).astype(np.int32),
        ),
        act("conv", (1, SIDE, SIDE, CHANNELS), 0.08, -20),
        Tensor("shape", (2,), "int32", data=np.array([1, flat], np.int32)),
        act("flat", (1, flat), 0.08, -20),
        Tensor("dense", (CLASSES, flat), "int8", Quantisation((0.01,), (0,)), weights(CLASSES, flat)),
        Tensor(
            "dense_bias",
            (CLASSES,),
            "int32",
            Quantisation((0.08 * 0.01,), (0,)),
            rng.integers(-900, 900, CLASSES).astype(np.int32),
        ),
        act("logits", (1, CLASSES), 0.6, 4),
        act("softmax", (1, CLASSES), 1 / 256, -128),
    )
    ops = (
        Op("CONV_2D", "conv", (0, 1, 2), (3,), ConvOptions(activation="relu")),
        Op("RESHAPE", "flat", (3, 4), (5,), NoOptions()),
        Op("FULLY_CONNECTED", "logits", (5, 6, 7), (8,), ActivationOptions()),
        Op("SOFTMAX", "softmax", (8,), (9,), SoftmaxOptions()),
    )
    return Graph(tensors, ops, (0,), (9,))


def flash_twin(folder: Path, graph: Graph, dataset: Path, config: FirmwareConfig) -> tuple[Path, Firmware, Path]:
    """The network's file, its images by the real step, and the proof of the flash step."""
    model = folder / "model.tflite"
    model.write_bytes(write_tflite(graph, "network for tests"))
    built = firmware.function(model, dataset, config=config, board=BOARD, out_dir=folder)
    proof = flash.function(
        built.image,
        built.image_bin,
        built.twin,
        built.footprint,
        config=FlashConfig(),
        target=Target(BOARD, "virtual"),
        out_dir=folder,
    )
    return model, built, proof.flash


@pytest.fixture(scope="session")
def flashed(tmp_path_factory: pytest.TempPathFactory) -> Flashed:
    folder = tmp_path_factory.mktemp("small_network")
    graph = small_network()
    features, dataset = folder / "features", write_json(folder / "dataset.json", {"source": "test"})
    model, built, proof = flash_twin(folder, graph, dataset, FirmwareConfig())
    golden = folder / "golden.npz"
    inputs = np.random.default_rng(11).integers(-128, 128, (5, SIDE, SIDE, 1)).astype(np.int8)
    np.savez(golden, inputs=inputs, outputs=run_tflm(model.read_bytes(), graph, inputs))
    features.mkdir()
    rng = np.random.default_rng(13)
    np.save(features / "test_x.npy", rng.normal(0, 3, (9, SIDE, SIDE, 1)).astype(np.float32))
    np.save(features / "test_y.npy", rng.integers(0, CLASSES, 9))
    return Flashed(graph, model, golden, built, proof, features, dataset)
