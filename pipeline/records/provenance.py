"""Where a run happened: the commit of the project's folder, the machine, the interpreter."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_GIT_LIMIT_S = 5.0
_OURS = (":(exclude)runs", ":(exclude)sweeps", ":(exclude).pipeline")  # written by runs: they make nothing dirty


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether anything differs from it; None outside a repository or without git."""
    argv = ["git", "status", "--porcelain=v2", "--branch", "--", ".", *_OURS]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        told = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=_GIT_LIMIT_S, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    commits = [line.split()[2] for line in told if line.startswith("# branch.oid ")]
    if not commits or not commits[0].isalnum():  # '(initial)': nothing is committed yet
        return None
    return {"commit": commits[0], "dirty": any(not line.startswith("#") for line in told)}


def machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
    }


def seeds(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Every value called `seed`, by its section."""
    return {name: values["seed"] for name, values in sections.items() if isinstance(values.get("seed"), int)}


def _first(file: str, key: str) -> str | None:
    """The value of the first 'key : value' line."""
    try:
        with open(file) as stream:
            return next((line.partition(":")[2].strip() for line in stream if line.startswith(key)), None)
    except OSError:
        return None
