"""The generated inner loops, line by line the same as ever."""

from __future__ import annotations

from tests.stages.firmware.pinned_text import assembly_rows, pinned


def test_inner_loops_are_those_that_were_looked_at() -> None:
    for found, wanted in zip(assembly_rows(), pinned("assembly"), strict=True):
        assert found == wanted
