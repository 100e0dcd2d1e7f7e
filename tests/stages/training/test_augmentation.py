"""Augmentation changes what it should, by as much as it may, and repeatably."""

from __future__ import annotations

import torch

from stages.prune.config import PruneConfig
from stages.training.augmentation import augmented
from stages.training.determinism import derived_seed, seeded

OFF = {"shift_frames": 0, "masked_frames": 0, "masked_coefficients": 0, "noise": 0.0}
CLIPS = torch.arange(1.0, 20 * 9 * 4 + 1).reshape(20, 1, 9, 4)


def test_nothing_switched_on_changes_nothing():
    assert torch.equal(augmented(CLIPS, PruneConfig(**OFF), seeded(0, "test", 0)), CLIPS)


def test_shift_moves_whole_frames_and_repeats_the_ends():
    shifted = augmented(CLIPS, PruneConfig(**(OFF | {"shift_frames": 2})), seeded(0, "test", 0))
    moves = [
        next(m for m in range(-2, 3) if torch.equal(clip, before[(torch.arange(9) - m).clamp(0, 8)]))
        for clip, before in zip(shifted[:, 0], CLIPS[:, 0], strict=True)
    ]
    assert set(moves) == {-2, -1, 0, 1, 2}
    assert moves == torch.randint(-2, 3, (20,), generator=seeded(0, "test", 0)).tolist()  # as drawn, later if positive


def test_masks_cover_one_stretch_of_at_most_the_configured_length():
    masked = augmented(CLIPS, PruneConfig(**(OFF | {"masked_frames": 3})), seeded(0, "test", 0))
    lengths = set()
    for clip, before in zip(masked[:, 0], CLIPS[:, 0], strict=True):
        gone = (clip == 0).all(1)
        assert torch.equal(clip[~gone], before[~gone])
        places = gone.nonzero().flatten().tolist()
        assert places == list(range(places[0], places[0] + len(places))) if places else True
        lengths.add(len(places))
    assert lengths == {0, 1, 2, 3}


def test_the_same_generator_gives_the_same_clips_and_another_one_others():
    config = PruneConfig()
    first, again, other = (augmented(CLIPS, config, seeded(0, "test", n)) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_seeds_differ_by_purpose_and_number():
    seeds = {derived_seed(s, purpose, n) for s in range(3) for purpose in ("a", "b") for n in range(5)}
    assert len(seeds) == 30
