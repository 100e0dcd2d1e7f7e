"""Is this machine ready? Each check says what was found and, where it fails, the one thing to do about it."""

from __future__ import annotations

import grp
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.engine.dag import Step
from pipeline.engine.tool_versions import package_version, program_version

_NEEDED_FREE_BYTES = 2 * 1000**3  # the quick run leaves well under 1 GB; twice that is room for a second one
_NEEDED_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """The result of one check; `fix` is empty when all is well."""

    check: str
    found: str
    fix: str = ""


def findings(
    root: Path,
    cache_root: Path,
    steps: Mapping[str, Step],
    install: Mapping[str, str],
    least: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    yield _python()
    for package in sorted({package for step in steps.values() for package in step.stage.packages}):
        version = package_version(package)
        yield Finding(f"package {package}", version or "not installed", "" if version else f"pip install {package}")
    programs = {program for step in steps.values() for program in (*step.stage.programs, *step.stage.twin_programs)}
    for program in sorted(programs | install.keys()):
        version = program_version(program)
        fix = "" if version else install.get(program, f"install {program} or add it to PATH")
        yield Finding(f"program {program}", version or "not on PATH", fix)
    for program, needed in (least or {}).items():
        if (version := program_version(program)) is not None:  # optional: what is not there need not be new
            yield _new_enough(program, version, needed)
    yield _serial_ports()
    yield _disk(cache_root if cache_root.exists() else root)
    yield _writable(cache_root)


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    needed = ".".join(str(part) for part in _NEEDED_PYTHON)
    return Finding("python", found, "" if sys.version_info >= _NEEDED_PYTHON else f"use Python {needed} or newer")


def _new_enough(program: str, version: str, needed: str) -> Finding:
    numbers = re.search(r"\d+(?:\.\d+)+", version)
    found = tuple(int(word) for word in numbers[0].split(".")) if numbers else ()
    is_old = found < tuple(int(word) for word in needed.split("."))
    return Finding(f"program {program}", version, f"install {program} {needed} or newer" if is_old else "")


def _serial_ports() -> Finding:
    ports = sorted(str(port) for pattern in ("ttyACM*", "ttyUSB*") for port in Path("/dev").glob(pattern))
    refused = [port for port in ports if not os.access(port, os.R_OK | os.W_OK)]
    if not ports:
        return Finding("serial ports", "none; the virtual twin is used")
    if not refused:
        return Finding("serial ports", ", ".join(ports))
    group = grp.getgrgid(os.stat(refused[0]).st_gid).gr_name
    return Finding(
        "serial ports", f"no permission for {', '.join(refused)}", f"sudo usermod -aG {group} $USER, then log in again"
    )


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    fix = (
        ""
        if free >= _NEEDED_FREE_BYTES
        else f"free {(_NEEDED_FREE_BYTES - free) / 1e9:.1f} GB, or run: pipeline gc --max-size 1GB"
    )
    return Finding("disk space", f"{free / 1e9:.1f} GB free", fix)


def _writable(folder: Path) -> Finding:
    """Tried, not asked: permissions do not tell of read-only and virtual file systems."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=existing):
            return Finding("cache folder", str(folder))
    except OSError as error:
        reason = f"{existing} is not writable ({error.strerror})"
        return Finding("cache folder", reason, "chown it to yourself, or set PIPELINE_CACHE to another folder")
