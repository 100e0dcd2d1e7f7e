"""Cache lines that ops fetch, from traces of each op alone: the twin's caches at addresses of the caller's choice."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hil.virtual.profiler import CacheShape, LineTraffic, MemoryKind, build_library, host_compiler
from pipeline.errors import ToolError

LOAD, STORE, CODE = range(3)  # the lowest bits of an event: plugin/trace_model.h
_KINDS: dict[MemoryKind, int] = {"uncached": 0, "flash": 1, "ram": 2}
_FIGURES = 6
_SOURCES = (Path(__file__).parent / "replay.c", Path(__file__).parent.parent / "plugin" / "cache_model.c")


@dataclass(frozen=True)
class Piece:
    """Addresses of a trace that lie together, and where they are now."""

    start: int
    end: int
    now: int
    kind: MemoryKind


@dataclass(frozen=True, eq=False)
class Touches:
    """What one op touches: events of plugin/trace_model.h; what no piece holds does not count."""

    events: bytes
    pieces: Sequence[Piece]


class _Piece(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("start", "end", "now", "kind")]


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("size_bytes", "ways", "line_bytes")]


class _Op(ctypes.Structure):
    _fields_ = [
        ("events", ctypes.c_void_p),
        ("event_count", ctypes.c_uint64),
        ("pieces", ctypes.POINTER(_Piece)),
        ("piece_count", ctypes.c_uint64),
    ]


def line_traffic(
    ops: Sequence[Touches], instruction: CacheShape, data: CacheShape, passes: int = 2
) -> tuple[LineTraffic, ...]:
    """Of each op when all of them run `passes` times, the last time."""
    shapes = (_Shape * 2)(*(_Shape(shape.size_bytes, shape.ways, shape.line_bytes) for shape in (instruction, data)))
    events = [np.frombuffer(op.events, np.uint32) for op in ops]  # kept alive while they are read
    pieces = []
    for op in ops:
        rows = sorted((piece.start, piece.end, piece.now, _KINDS[piece.kind]) for piece in op.pieces)
        pieces.append((_Piece * len(rows))(*(_Piece(*row) for row in rows)))
    given = (_Op * len(ops))(
        *(_Op(own.ctypes.data, len(own), rows, len(rows)) for own, rows in zip(events, pieces, strict=True))
    )
    figures = np.zeros((len(ops), _FIGURES), np.uint64)
    if not _library().replay(given, len(ops), passes, shapes, figures.ctypes.data):
        raise ToolError(f"caches of {instruction} and {data} cannot be followed: sizes must be powers of two")
    return tuple(LineTraffic(*map(int, row)) for row in figures)


@cache
def _library() -> ctypes.CDLL:
    """Compiled once in a process."""
    compiler = host_compiler()
    if compiler is None:
        raise ToolError.missing("gcc", "to follow what caches hold", "apt-get install gcc libc6-dev")
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        library = build_library(Path(folder) / "replay.so", compiler, _SOURCES)
        loaded = ctypes.CDLL(str(library))  # stays mapped when its file is gone
    loaded.replay.argtypes = [
        ctypes.POINTER(_Op),
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.POINTER(_Shape),
        ctypes.c_void_p,
    ]
    loaded.replay.restype = ctypes.c_bool
    return loaded
