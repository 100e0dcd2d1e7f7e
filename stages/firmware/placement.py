"""Where the parts of a network lie in a board's memory, as decided by `regions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spill:
    """An arena in two parts: tensors for which the preferred region has no room lie in another one."""

    region: str
    macro: str  # of boards/firmware/core/placement.h
    first_bytes: int  # of the part in the preferred region
    second_bytes: int
    first: Mapping[int, int]  # offsets of the tensors there
    second: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where arena, scratch and weights go."""

    region: str  # of the arena, or of its first part
    macro: str
    scratch_macro: str = ""  # where it is not that of the arena
    spill: Spill | None = None
    ram_weights: frozenset[int] = frozenset()  # ops whose weights are copied to the preferred region at start-up

    def pointer(self, tensor: int, offsets: tuple[int, ...]) -> str:
        """The C expression for the first byte of a tensor."""
        if self.spill is None:
            return f"&arena[{offsets[tensor]}]"
        if tensor in self.spill.first:
            return f"&arena[{self.spill.first[tensor]}]"
        return f"&second_arena[{self.spill.second[tensor]}]"
