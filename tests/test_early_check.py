"""A user's network that cannot be pruned is refused before the data are prepared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.a, self.odd, self.fc = nn.Conv2d(3, 8, 3), activation, nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(self.odd(self.a(x)).mean((2, 3)))

def bad():
    return Net(nn.GELU())

def good():
    return Net(nn.ReLU())
"""


@pytest.mark.parametrize(
    "network, budget, sentence",
    [
        ("{module: 'nets:bad'}", "10KB", "prune: odd (GELU): no such layer is supported"),
        ("{module: 'nets:none'}", "10KB", "prune: network.module: nets:none: cannot be imported"),
        (
            "{module: 'nets:good', input_shape: [16, 16, 3], classes: 2}",
            "20B",
            "prune: budget.size_bytes: 20 B cannot be met, nets:good with 4 channels in every layer needs",
        ),
    ],
)
def test_a_network_that_cannot_be_pruned_is_refused_before_prepare(network, budget, sentence, tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    for name in ("one", "two"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.random.default_rng(i).integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "own" / name / f"{i}.png")
    (tmp_path / "pipeline.yaml").write_text(
        f"experiments:\n  mine:\n    data: {{source: folder, root: {tmp_path / 'own'}}}\n"
        f"    network: {network}\n    budget: {{size_bytes: {budget}}}\n"
    )
    command = [sys.executable, "-m", "pipeline.cli", "run", "mine", "--virtual"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=_environment(tmp_path))
    assert sentence in done.stderr and done.returncode in (1, 2), done.stderr
    assert "prepare" not in done.stderr, "no step has begun"
    assert not list(Path(tmp_path / ".pipeline").glob("entries/prepare/*"))


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PIPELINE_CACHE": str(folder / ".pipeline")}
