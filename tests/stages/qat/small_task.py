"""A small network, features that it can learn, and stand-ins for the engine: all that qat and export need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pipeline.stage import write_json
from stages.nets.config import NetworkConfig
from stages.nets.registry import Architecture, save_architecture

INPUT_SHAPE = (13, 10, 1)
# What prepare says of a front end of ten coefficients.
HEARD = {
    "sample_rate_hz": 16_000, "feature_mean": [0.5] * 10, "feature_std": [2.0] * 10,
    "features": {
        "window_samples": 640, "hop_samples": 320, "fft_size": 1024, "mel_bins": 40, "low_hz": 20, "high_hz": 4000,
        "coefficients": 10,
    },
}  # fmt: skip
CLASSES = 4


class Quiet:
    """Progress that nobody watches."""

    def start(self, total: int, unit: str) -> None:
        pass

    def advance(self, count: int = 1, note: str = "") -> None:
        pass


@dataclass(frozen=True)
class SmallTask:
    """Files as prepare and prune leave them."""

    features: Path
    dataset: Path
    network: Path
    architecture: Path


def lively_network(seed: int, widths: tuple[int, ...] = (12, 16, 14)) -> tuple[Architecture, nn.Module]:
    """A DS-CNN with random weights, and with batch statistics that are not those of a new network."""
    config = NetworkConfig(width=max(widths), blocks=len(widths) - 1, input_shape=INPUT_SHAPE, classes=CLASSES)
    architecture = Architecture(network=config, widths=widths)
    torch.manual_seed(seed)
    network = architecture.build()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.1, 0.5)
            module.weight.data.uniform_(0.7, 1.5)
            module.bias.data.normal_(0, 0.3)
    return architecture, network.eval()


def small_task(folder: Path, seed: int = 0, samples: int = 240) -> SmallTask:
    """Classes are spectra, the same at all times, in noise."""
    architecture, network = lively_network(seed)
    torch.save(network.state_dict(), folder / "network.pt")
    save_architecture(folder / "architecture.json", architecture)
    rng = np.random.default_rng(seed)
    spectra = 1.5 * rng.normal(size=(CLASSES, 1, *INPUT_SHAPE[1:]))
    (folder / "features").mkdir()
    for name in ("train", "validation", "test"):
        y = rng.integers(0, CLASSES, samples)
        x = spectra[y] + rng.normal(size=(samples, *INPUT_SHAPE))
        np.save(folder / "features" / f"{name}_x.npy", x.astype(np.float32))
        np.save(folder / "features" / f"{name}_y.npy", y)
    write_json(folder / "dataset.json", {"classes": [f"class {number}" for number in range(CLASSES)], **HEARD})
    return SmallTask(folder / "features", folder / "dataset.json", folder / "network.pt", folder / "architecture.json")
