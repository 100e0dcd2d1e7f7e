"""model.c and model.h around the kernel calls, and fused chains: character by character the same as ever."""

from __future__ import annotations

from tests.stages.firmware.pinned_text import model_rows, pinned


def test_generated_models_are_those_that_were_looked_at() -> None:
    for found, wanted in zip(model_rows(), pinned("model"), strict=True):
        assert found == wanted
