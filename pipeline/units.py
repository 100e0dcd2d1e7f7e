"""Quantities with units as configuration types: `51.7KB` -> 51700 bytes, `216MHz` -> 216000000 hertz.

A quantity without its unit is refused, and so is one that is not a whole number of its base unit. 1 KB = 1000 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator

_NUMBER = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ]*)\s*$")

_BYTES = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_COUNT = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_HERTZ = {"Hz": 1, "kHz": 1000, "MHz": 1000**2, "GHz": 1000**3}
_SECONDS: dict[str, int | Decimal] = {
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": 1,
    "min": 60,
    "h": 3600,
    "d": 86400,
}
_WATTS: dict[str, int | Decimal] = {"uW": Decimal("1e-6"), "mW": Decimal("1e-3"), "W": 1}


def _quantity(units: Mapping[str, int | Decimal], example: str, whole: bool) -> Callable[[Any], int | float]:
    def parse(value: Any) -> int | float:
        match = None if isinstance(value, bool) else _NUMBER.match(str(value))
        if match is None:
            raise ValueError(f"found {value!r}, needed a quantity such as {example}")
        number, unit = Decimal(match[1]), match[2]
        if unit not in units:
            found = f"unknown unit {unit!r}" if unit else "missing unit"
            known = ", ".join(name for name in units if name)
            raise ValueError(f"found {value!r}: {found}, needed one of {known}, such as {example}")
        if number <= 0:
            raise ValueError(f"found {value!r}, needed a quantity above zero, such as {example}")
        base = number * units[unit]
        if not whole:
            return float(base)
        if base != int(base):
            raise ValueError(f"found {value!r}: not a whole number of base units, needed such as {example}")
        return int(base)

    return parse


parse_bytes = _quantity(_BYTES, "51.7KB", True)
parse_count = _quantity(_COUNT, "8.351M", True)
parse_hertz = _quantity(_HERTZ, "216MHz", True)
parse_seconds = _quantity(_SECONDS, "500ms", False)
parse_watts = _quantity(_WATTS, "900mW", False)

Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Count = Annotated[int, BeforeValidator(parse_count)]
Hertz = Annotated[int, BeforeValidator(parse_hertz)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Watts = Annotated[float, BeforeValidator(parse_watts)]
