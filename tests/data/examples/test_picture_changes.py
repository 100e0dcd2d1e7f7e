"""Pictures changed by torchvision, by seed and number alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data.examples.picture_changes import changed_pictures
from stages.training.config import PictureChanges

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), dtype=np.uint8)
NUMBERS = np.arange(6)
OFF = {"mirror": 0.0}


def changed(numbers: np.ndarray = NUMBERS, seed: int = 1, **settings: object) -> np.ndarray:
    wanted = PictureChanges(**(OFF | settings))  # type: ignore[arg-type]
    return changed_pictures(wanted, (12, 12))(PICTURES[numbers], numbers, [seed])


def test_nothing_switched_on_changes_nothing() -> None:
    assert np.array_equal(changed(), PICTURES)


@pytest.mark.parametrize(
    "settings", [{"crop_scale": (0.3, 0.9)}, {"colour": 0.4}, {"rotate_degrees": 20.0}, {"mirror": 0.5}]
)
def test_a_change_depends_on_seed_and_number_alone(settings: dict[str, object]) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    whole = changed(**settings)
    assert np.array_equal(changed(NUMBERS[[4, 1]], **settings), whole[[4, 1]])
    assert not np.array_equal(whole, PICTURES) and not np.array_equal(changed(seed=2, **settings), whole)
    assert torch.equal(torch.get_rng_state(), state), "the training's own generator does not move"


def test_mirroring_always_mirrors() -> None:
    assert np.array_equal(changed(mirror=1.0), PICTURES[:, :, ::-1])


def test_a_falling_range_is_refused() -> None:
    with pytest.raises(ValueError, match="found crop_scale from 0.9 to 0.3, needed rising and above 0"):
        PictureChanges(crop_scale=(0.9, 0.3))
