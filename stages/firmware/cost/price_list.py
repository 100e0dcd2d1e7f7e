"""Prices of kernel calls that were asked for before: in memory, and on disk for the next process.

A price depends on the call without the values in its arrays, on the kernels' sources, the compiler and the core. The
file is a notebook, not a result: what it lacks, or what is damaged in it, is priced anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hil.virtual
from stages.firmware.build.image import FIRMWARE, kernel_sources
from stages.firmware.build.toolchain import COMPILER, run_tool
from stages.firmware.cost.bench import Price, Setting, Task, prices
from stages.firmware.cost.trace import Trace, TracedPiece
from stages.firmware.kernels.calls import KernelCall

_VALUES = re.compile(r"(\[\d+\]) = \{\n[^}]*\n\};")
_NUMBERED = re.compile(r"\b(op|fused|tensor|band|end|part)_\d+")


class PriceList:
    """What calls cost; `folder` holds what earlier processes asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder if folder is not None else _notebook()
        self._known: dict[str, Price] = {}
        self._read: set[Path] = set()

    def of(self, tasks: Sequence[Task], setting: Setting, *, traced: bool = False) -> list[Price]:
        """In the order of the tasks; what is not known yet is priced in one go."""
        page = self._page(setting)
        keys = [_key(task.call, page.name) for task in tasks]
        missing = {key: task for key, task in zip(keys, tasks, strict=True) if not self._knows(key, page, traced)}
        if missing:
            self._known.update(zip(missing, prices(list(missing.values()), setting, traced=traced), strict=True))
            self._write(page, {key: self._known[key] for key in missing})
        return [self._known[key] for key in keys]

    def _knows(self, key: str, page: Path, traced: bool) -> bool:
        """Whether a price is known, with its trace where one is wanted."""
        price = self._known.get(key)
        if price is None or not traced or price.trace is not None:
            return price is not None
        with contextlib.suppress(OSError, ValueError, TypeError, zlib.error):
            pieces, packed = _trace_file(page, key).read_bytes().split(b"\n", 1)
            trace = Trace(tuple(TracedPiece(*row) for row in json.loads(pieces)), packed)
            _ = trace.events  # whole
            self._known[key] = replace(price, trace=trace)
            return True
        return False

    def _page(self, setting: Setting) -> Path:
        """The file of a setting, its prices taken over."""
        text = f"{setting}\n{_sources_digest()}"
        page = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.jsonl"
        if page not in self._read:
            self._read.add(page)
            with contextlib.suppress(OSError):
                for line in page.read_text().splitlines():
                    with contextlib.suppress(ValueError, TypeError, KeyError):
                        record = json.loads(line)
                        key = record.pop("key")
                        record["constants_bytes"] = tuple(record["constants_bytes"])
                        self._known[key] = Price(**record)
        return page

    def _write(self, page: Path, found: dict[str, Price]) -> None:
        """Whole lines in one write each: of two processes neither loses what the other adds."""
        lines = "".join(json.dumps({"key": key, **_record(price)}) + "\n" for key, price in found.items())
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._folder.stat().st_uid == os.getuid():
                with page.open("a") as stream:
                    stream.write(lines)
                for key, price in found.items():
                    if price.trace is not None:
                        _write_trace(_trace_file(page, key), price.trace)


def _record(price: Price) -> dict[str, Any]:
    return {
        "cycles_zero_wait": price.cycles_zero_wait,
        "code_lines": dict(price.code_lines),
        "assembly_bytes": dict(price.assembly_bytes),
        "constants_bytes": price.constants_bytes,
    }


def _trace_file(page: Path, key: str) -> Path:
    return page.with_suffix("") / key


def _write_trace(file: Path, trace: Trace) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    pieces = json.dumps([[piece.start, piece.end, piece.what, piece.name] for piece in trace.pieces])
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_bytes(pieces.encode() + b"\n" + trace.packed)
    partial.replace(file)


def _key(call: KernelCall, page: str) -> str:
    """A call without its values and its number."""
    names = sorted(name for name, _ in call.assembly)
    constants = _VALUES.sub(r"\1;", call.constants)
    text = "\n".join([page, call.kernel, call.call, constants, call.function, *names])
    return hashlib.sha256(_NUMBERED.sub(r"\1", text).encode()).hexdigest()


@cache
def _sources_digest() -> str:
    """Of all that is compiled into a bench, of the compiler, and of what counts and prices."""
    room, virtual = Path(__file__).parent, Path(hil.virtual.__file__).parent
    files = sorted({*kernel_sources(), *FIRMWARE.rglob("*.h")})
    files += [*sorted((room.parent / "assembly").glob("*.py")), room / "bench.py", room / "trace.py"]
    files += [*sorted(virtual.glob("*.py")), *sorted((virtual / "plugin").iterdir())]
    digest = hashlib.sha256(run_tool([COMPILER, "--version"]).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _notebook() -> Path:
    return Path(tempfile.gettempdir()) / f"pipeline-prices-{os.getuid()}"
