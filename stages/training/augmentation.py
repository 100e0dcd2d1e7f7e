"""Features of sounds made a little different, each time a batch is used."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class FeatureAugmentation(Protocol):
    """How much may change; 0 turns a kind off."""

    @property
    def shift_frames(self) -> int: ...
    @property
    def masked_frames(self) -> int: ...
    @property
    def masked_coefficients(self) -> int: ...
    @property
    def noise(self) -> float: ...


def augmented(
    x: Tensor,
    wanted: FeatureAugmentation,
    generator: torch.Generator,
    share: slice = slice(None),
    of: int | None = None,
) -> Tensor:
    """Each example shifted in time, a stretch of frames and a band of coefficients set to 0 (the mean), noise added.

    Where `x` is only a share of a batch of `of` examples, it gets what the whole batch would have drawn for it.
    """
    frames, coefficients = x.shape[2:]
    count = len(x) if of is None else of
    if wanted.shift_frames:
        shift = _whole(count, -wanted.shift_frames, wanted.shift_frames, generator)[share]
        source = torch.arange(frames)[None, :] - shift[:, None]
        # Beyond its ends a clip goes on as it ended there: what is outside is background.
        index = source.clamp(0, frames - 1)[:, None, :, None].expand_as(x)
        x = x.gather(2, index)
    if wanted.noise:
        x = x + torch.randn((count, *x.shape[1:]), generator=generator)[share] * wanted.noise
    if wanted.masked_frames:
        x = x * _kept(count, frames, wanted.masked_frames, generator)[share, None, :, None]
    if wanted.masked_coefficients:
        x = x * _kept(count, coefficients, wanted.masked_coefficients, generator)[share, None, None, :]
    return x


def _kept(count: int, length: int, longest: int, generator: torch.Generator) -> Tensor:
    """For each example 1 everywhere but on one random stretch of at most `longest`."""
    size = _whole(count, 0, longest, generator)
    start = (torch.rand(count, generator=generator) * (length - size + 1)).long()
    position = torch.arange(length)[None, :]
    return 1.0 - ((position >= start[:, None]) & (position < (start + size)[:, None])).float()


def _whole(count: int, low: int, high: int, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high + 1, (count,), generator=generator)
