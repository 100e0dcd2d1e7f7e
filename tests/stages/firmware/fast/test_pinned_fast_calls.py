"""Operators as calls of fast kernels: which are taken, and the generated C, character by character the same as ever."""

from __future__ import annotations

import pytest

from stages.firmware.fast.dot import Weights
from tests.stages.firmware.pinned_text import call_rows, pinned


@pytest.mark.parametrize("weights", ["fast", "small"])
def test_calls_of_fast_kernels_are_those_that_were_looked_at(weights: Weights) -> None:
    for found, wanted in zip(call_rows(weights), pinned(weights), strict=True):
        assert found == wanted
