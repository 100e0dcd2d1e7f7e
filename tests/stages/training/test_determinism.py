"""What trainings share."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# In a process of its own: what the C library is told once, it keeps to.
COUNT_FAULTS = """
import resource
import torch
from stages.training.determinism import reproducible

def page_faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        torch.ones(16_000_000)  # 64 MB: more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(page_faults(20))
with reproducible(1):
    page_faults(20)  # the heap grows to what the steps need, mostly
    print(page_faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_memory_of_a_step_is_there_for_the_next_one() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    by_default, in_training = map(int, done.stdout.split())
    assert in_training < by_default / 3
