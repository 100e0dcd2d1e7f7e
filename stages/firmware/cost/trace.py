"""What a priced call touches: events of hil/virtual/plugin/trace_model.h, and which addresses of the bench are what."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hil.virtual.program import Program
from hil.virtual.replay.lines import CODE
from stages.firmware.kernels.calls import KernelCall

CALLS = "calls"  # the bench's function that stands for model_invoke
_FUSED = re.compile(r"^t\d+_fused_\d")
_DEFINITION = re.compile(r"^static (?:const )?(?:struct )?\w+ (\w+)(?:\[\d+\])?(?: __attribute__\S+)? = ", re.MULTILINE)

What = Literal["scratch", "activation", "constant", "function", "fused", "call"]


@dataclass(frozen=True)
class TracedPiece:
    """Addresses in the bench that are one thing; `name` is a function's, or a number among its like."""

    start: int
    end: int
    what: What
    name: str = ""


@dataclass(frozen=True)
class Trace:
    """Events, packed, and the pieces that they lie in."""

    pieces: tuple[TracedPiece, ...]
    packed: bytes

    @property
    def events(self) -> bytes:
        return zlib.decompress(self.packed)

    @property
    def own_code_bytes(self) -> int:
        """Of code that model.c has for this call."""
        return sum(piece.end - piece.start for piece in self.pieces if piece.what in ("call", "fused"))


def constant_names(call: KernelCall) -> list[str]:
    """In the order of their definitions."""
    return _DEFINITION.findall(call.constants)


def traced_pieces(program: Program, events: bytes, own: Sequence[TracedPiece]) -> Trace:
    """With the functions that ran; of the bench's list of calls the part that was this one."""
    words = np.frombuffer(events, np.uint32)
    code = np.unique(words[words & 3 == CODE] & ~np.uint32(3))
    functions = sorted((symbol.address, symbol.size_bytes, symbol.name) for symbol in program.functions)
    starts = np.array([address for address, _, _ in functions])
    pieces = list(own)
    for index in np.unique(np.searchsorted(starts, code, side="right") - 1) if len(code) else ():
        start, size, name = functions[index]
        end = start + size
        if name == CALLS:
            inside = code[(code >= start) & (code < end)]
            pieces.append(TracedPiece(int(inside.min()), int(inside.max()) + 4, "call"))
        elif _FUSED.match(name):
            pieces.append(TracedPiece(start, end, "fused"))
        else:
            pieces.append(TracedPiece(start, end, "function", name))
    return Trace(tuple(pieces), zlib.compress(events, 1))
