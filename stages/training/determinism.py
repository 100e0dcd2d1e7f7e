"""Random numbers that depend only on the configured seed and on what they are for.

No generator runs through the training: an epoch or an update draws from its own, so a run that was killed and resumed
draws the same numbers as one that was not.
"""

from __future__ import annotations

import hashlib

import torch


def seeded(seed: int, purpose: str, number: int) -> torch.Generator:
    """A generator for the `number`-th use of `purpose`."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose, number))


def derived_seed(seed: int, purpose: str, number: int) -> int:
    digest = hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
