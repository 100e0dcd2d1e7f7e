"""Operators as calls of portable kernels: the generated C, character by character the same as ever."""

from __future__ import annotations

from tests.stages.firmware.pinned_text import call_rows, pinned


def test_calls_of_portable_kernels_are_those_that_were_looked_at() -> None:
    for found, wanted in zip(call_rows(None), pinned("portable"), strict=True):
        assert found == wanted
