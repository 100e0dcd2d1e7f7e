"""A tiny task and one undisturbed run of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.stages.prune.prune_runs import (
    prune,
)


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Three classes, each a fixed picture under noise."""
    folder = tmp_path_factory.mktemp("prune_data")
    draw = np.random.default_rng(0)
    pictures = draw.normal(size=(3, 12, 6, 1))
    (folder / "features").mkdir()
    for name, count in (("train", 80), ("validation", 30), ("test", 30)):
        labels = draw.integers(0, 3, count)
        features = pictures[labels] + 0.5 * draw.normal(size=(count, 12, 6, 1))
        np.save(folder / "features" / f"{name}_x.npy", features.astype(np.float32))
        np.save(folder / "features" / f"{name}_y.npy", labels.astype(np.int64))
    (folder / "dataset.json").write_text('{"classes": ["a", "b", "c"]}')
    return folder


@pytest.fixture(scope="session")
def undisturbed(data, tmp_path_factory) -> Path:
    out_dir = tmp_path_factory.mktemp("prune_run") / "out"
    prune(data, out_dir)
    return out_dir
