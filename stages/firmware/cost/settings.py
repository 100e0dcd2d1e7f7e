"""What the cost of a network depends on of the section `firmware`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.firmware.config import FirmwareConfig


@dataclass(frozen=True)
class FirmwareSettings:
    """The same keys and defaults as stages/firmware/config.py, which says what they mean."""

    weights: Literal["fast", "small"] = "fast"
    runtime: Literal["classic", "overlap"] = "overlap"
    fusion: Literal["rows", "none"] = "rows"
    optimise: Literal["O2", "O3", "Os"] = "O3"
    spare_ram: Literal["weights", "free"] = "weights"
    clock: int | None = None


def settings_of(config: FirmwareConfig) -> FirmwareSettings:
    """The part of a section that counts."""
    return FirmwareSettings(**{key: getattr(config, key) for key in FirmwareSettings.__dataclass_fields__})
