"""Versions of the Python packages and programs that a step declares; they are part of its cache key."""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import subprocess
from collections.abc import Mapping

from pipeline.errors import ToolError

_VERSION_LIMIT_S = 20.0


@functools.cache
def package_version(distribution: str) -> str | None:
    """Installed version of a Python distribution; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def program_version(program: str) -> str | None:
    """First line of `program --version`; None when it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        return None
    argv = [path, "--version"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, _VERSION_LIMIT_S) from error
    except OSError as error:
        raise ToolError(f"{path}: cannot be started ({error.strerror}); install {program} again") from error
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines else "unknown"


def require_package(distribution: str, step: str) -> None:
    if package_version(distribution) is None:
        raise ToolError(
            f"{step}: Python package {distribution} is not installed; install it with: pip install {distribution}"
        )


def require_program(program: str, step: str, install: Mapping[str, str]) -> None:
    if program_version(program) is None:
        how = f"install it with: {install[program]}" if program in install else "install it or add it to PATH"
        raise ToolError.missing(program, f"by step {step}", how)
