"""The painted stack of a device against the bound that was read off its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.errors import StageError
from pipeline.stage import Source


def check_stack(high_water_bytes: int, footprint: Mapping[str, Any], source: Source) -> None:
    """Refuse a measurement whose stack went deeper than the firmware step says it can."""
    bound = footprint["stack" if source == "hardware" else "stack_twin"]["image_bytes"]
    if high_water_bytes > bound:
        raise StageError(
            f"measure: the stack went {high_water_bytes} B deep, the bound of footprint.json is {bound} B; "
            "stages/firmware/memory/stack_depth.py misses a call"
        )
