"""Training, pruning and fine-tuning on a device that is not the CPU: nothing is left behind on the wrong side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("case", ["plain", "recipe"])
def test_prune_and_qat_compute_on_another_device_what_they_compute_on_the_cpu(data, tmp_path, case):
    command = [sys.executable, "-m", "tests.stages.prune.recipes.other_device_run", str(data), str(tmp_path), case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_tensor_left_behind_on_the_cpu_is_caught():
    code = "import torch; from tests.stages.training.other_device import other_device; "
    mixed = "torch.ones(3).to(other_device()) + torch.ones(3)"
    done = subprocess.run([sys.executable, "-c", code + mixed], cwd=ROOT, capture_output=True, text=True)
    assert "aten::add: a tensor of the CPU, (3,), met one of the other device" in done.stderr
