"""Whether the bytes of a .tflite are a flatbuffer whose parts lie inside the file, before anything is made of them.

The accessors that flatbuffers generates check single reads, but believe every length and offset. A hostile file can let
thousands of entries share one long list, so that a few kilobytes unfold to gigabytes. Here the tree of tables is walked
once: every table, list and string must lie inside the file, and all of them together, counted as often as they are
referred to, may be four times the file at most. Afterwards unpacking copies no more than that; lists that become Python
values, fifty bytes a number, have limits of their own in the reader.
The walk knows the fields that hold references (schema version 3, by slot); the rest are numbers inside their table.
What it cannot follow is refused: sparse tensors, and the options of StableHLO operators.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pipeline.errors import StageError

MARK = b"TFL3"
OFFLINE_PLAN = "OfflineMemoryAllocation"  # the metadata entry in which TensorFlow Lite Micro looks for a plan
_SHARING = 4  # how often, on average, a byte may be referred to; writers seldom share anything
_MOST_TABLES = 60_000  # real networks have a few hundred; this many are walked within a second
_WORD = struct.Struct("<I")
_SIGNED_WORD = struct.Struct("<i")
_HALF = struct.Struct("<H")


@dataclass(frozen=True)
class _Numbers:
    """A list of numbers of so many bytes each."""

    item_bytes: int


@dataclass(frozen=True)
class _Tables:
    """A list of tables of one type."""

    type: str


@dataclass(frozen=True)
class _Table:
    """One table."""

    type: str


@dataclass(frozen=True)
class _Refused:
    """Something that none of our networks has, and whose own lists would have to be followed, too."""

    what: str


_Reference = _Numbers | _Tables | _Table | _Refused
_TEXT = _Numbers(1)
_REFERENCES: dict[str, dict[int, _Reference]] = {
    "Model": {
        1: _Tables("OperatorCode"),
        2: _Tables("SubGraph"),
        3: _TEXT,
        4: _Tables("Buffer"),
        5: _Numbers(4),
        6: _Tables("Metadata"),
        7: _Tables("SignatureDef"),
        8: _Tables("ExternalBufferGroup"),
        9: _Tables("ExternalBuffer"),
    },
    "OperatorCode": {1: _TEXT},
    "SubGraph": {0: _Tables("Tensor"), 1: _Numbers(4), 2: _Numbers(4), 3: _Tables("Operator"), 4: _TEXT},
    "Buffer": {0: _Numbers(1)},
    "Metadata": {0: _TEXT},
    "SignatureDef": {0: _Tables("TensorMap"), 1: _Tables("TensorMap"), 2: _TEXT},
    "TensorMap": {0: _TEXT},
    "ExternalBufferGroup": {0: _TEXT},
    "ExternalBuffer": {4: _TEXT},
    "Tensor": {
        0: _Numbers(4),
        3: _TEXT,
        4: _Table("Quantization"),
        6: _Refused("a sparse tensor"),
        7: _Numbers(4),
        9: _Tables("VariantSubType"),
    },
    "VariantSubType": {0: _Numbers(4)},
    "Quantization": {0: _Numbers(4), 1: _Numbers(4), 2: _Numbers(4), 3: _Numbers(8), 5: _Table("Details")},
    "Details": {0: _Numbers(1)},
    "Operator": {
        1: _Numbers(4),
        2: _Numbers(4),
        4: _Table("Options"),
        5: _Numbers(1),
        7: _Numbers(1),
        8: _Numbers(4),
        12: _Refused("an operator with options of StableHLO"),
    },
    "Options": {},  # numbers only, for operators that we know; the one list, of RESHAPE, is checked by the reader
}


@dataclass
class _Walk:
    """The file, and how much more of it may be visited."""

    data: bytes
    bytes_left: int
    tables_left: int = _MOST_TABLES

    def table(self, start: int, type_name: str) -> None:
        self.tables_left -= 1
        if self.tables_left < 0:
            raise StageError(f"more than {_MOST_TABLES} tables, needed a network for a microcontroller")
        fields_at = start - _SIGNED_WORD.unpack_from(self.data, self._inside(start, 4))[0]
        fields_bytes = _HALF.unpack_from(self.data, self._inside(fields_at, 4))[0]
        own_bytes = _HALF.unpack_from(self.data, fields_at + 2)[0]
        self._inside(fields_at, fields_bytes)
        self._visit(start, own_bytes)
        for slot, reference in _REFERENCES[type_name].items():
            place = 4 + 2 * slot
            if place + 2 > fields_bytes:
                break  # slots are listed in rising order: the rest is absent, too
            offset = _HALF.unpack_from(self.data, fields_at + place)[0]
            if offset:
                self._follow(start + offset, reference)

    def _follow(self, at: int, reference: _Reference) -> None:
        if isinstance(reference, _Refused):
            raise StageError(f"{reference.what} is not supported, needed a dense network of TensorFlow Lite's own ops")
        target = at + _WORD.unpack_from(self.data, self._inside(at, 4))[0]
        if isinstance(reference, _Table):
            self.table(target, reference.type)
            return
        count = _WORD.unpack_from(self.data, self._inside(target, 4))[0]
        item_bytes = reference.item_bytes if isinstance(reference, _Numbers) else 4
        self._visit(target + 4, count * item_bytes)
        if isinstance(reference, _Tables):
            for entry in range(target + 4, target + 4 + 4 * count, 4):
                self.table(entry + _WORD.unpack_from(self.data, entry)[0], reference.type)

    def _visit(self, start: int, size_bytes: int) -> None:
        self._inside(start, size_bytes)
        self.bytes_left -= size_bytes
        if self.bytes_left < 0:
            raise StageError("its lists unfold to far more than the file holds, needed lists of their own")

    def _inside(self, start: int, size_bytes: int) -> int:
        if start < 0 or start + size_bytes > len(self.data):
            found = f"bytes {start} to {start + size_bytes} of {len(self.data)} are referred to"
            raise StageError(f"damaged .tflite ({found}), needed a whole file; fetch or export it again")
        return start


def check_structure(data: bytes) -> None:
    """Raise StageError unless the tree of tables lies inside the file and is no larger than it can be."""
    if len(data) < 8 or data[4:8] != MARK:
        raise StageError(f"not a .tflite file ({len(data)} B, no mark 'TFL3'), needed a flatbuffer of version 3")
    _Walk(data, _SHARING * len(data)).table(_WORD.unpack_from(data, 0)[0], "Model")
