"""Where a training computes, and how precisely."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from pipeline.errors import ConfigError

_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def chosen_device(name: str, rank: int = 0) -> torch.device:
    """The device of this name; 'auto' takes a GPU where there is one. `rank` is the process's number among several."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    is_there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(name, lambda: True)
    if not is_there():
        raise ConfigError(f"training.device: {name} is not there, or torch was built without it; set it to cpu or auto")
    return torch.device(name, rank % torch.cuda.device_count()) if name == "cuda" else torch.device(name)


def at_precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """Meanwhile convolutions and products are computed in this precision, weights and sums stay float32."""
    return nullcontext() if name == "float32" else torch.autocast(device.type, dtype=_PRECISIONS[name])


def gradient_scaler(name: str, device: torch.device) -> torch.amp.GradScaler | None:
    """What keeps small gradients of float16 from becoming 0; the other precisions have the range of float32."""
    return torch.amp.GradScaler(device.type) if name == "float16" else None
