"""The same bits every time: random numbers that depend only on the seed and on what they are for, fixed threads.

No generator runs through the training: an epoch or an update draws from its own, so a run that was killed and resumed
draws the same numbers as one that was not.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of glibc's mallopt


def seeded(seed: int, purpose: str, number: int) -> torch.Generator:
    """A generator for the `number`-th use of `purpose`."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose, number))


def derived_seed(seed: int, purpose: str, number: int) -> int:
    digest = hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


@contextmanager
def reproducible(threads: int, device: str = "cpu") -> Iterator[None]:
    """Fixed threads, because sums are split among them, and no kernel that may add in another order; then as before.

    On a GPU some ops have no kernel that always adds in the same order: there results agree to rounding only.
    """
    _keep_freed_memory()
    threads_before = torch.get_num_threads()
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(device == "cpu")
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing of ours reads it, and filling takes time
        try:
            yield
        finally:
            torch.set_num_threads(threads_before)
            torch.use_deterministic_algorithms(deterministic_before)
            torch.utils.deterministic.fill_uninitialized_memory = fill_before


def _keep_freed_memory() -> None:
    """Let the C library keep what is freed for the next step, from now on.

    By default it gives large blocks back, and every page of them costs a fault when a step asks for it again: 64,000 in
    a step of 'MN-M', a fifth of its time. Other C libraries than glibc stay as they are.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
