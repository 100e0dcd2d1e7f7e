"""The process that executes one step, forked by the server: its job as one JSON line, its channel for the answers.

It answers with JSON lines: progress, then the outputs or one error. Whatever a library prints goes to the step's log.
When the channel closes, the engine is gone and the worker ends at once: nothing works on behind a dead run.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import json
import os
import shutil
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import DiskFull, HardwareError, PipelineError
from pipeline.stage import Checkpoint, Progress, Stage, Target

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_FULL_BELOW_BYTES = 1 << 20


class Job(BaseModel):
    """Everything a worker has to know, as plain values."""

    model_config = ConfigDict(frozen=True)

    root: Path  # project folder: where the modules are imported from
    module: str
    artifacts: dict[str, Path | dict[str, Path] | None]
    sections: dict[str, dict[str, Any]]
    experiment: str
    target: Target | None
    out_dir: Path
    checkpoint_dir: Path
    check: str | None = None  # 'module:function' to be called instead of the step
    # Ingredients behind its key: another machine must have the same code and tools. Not for the process of the step.
    made_of: dict[str, Any] = Field(default_factory=dict, exclude=True)


class _EventProgress:
    """`Progress` as events; the engine draws them."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def start(self, total: int, unit: str) -> None:
        send(self._channel, {"event": "start", "total": total, "unit": unit})

    def advance(self, count: int = 1, note: str = "") -> None:
        send(self._channel, {"event": "advance", "count": count, "note": note})


def send(channel: socket.socket, event: Mapping[str, Any]) -> None:
    channel.sendall(json.dumps(event).encode() + b"\n")


def call(job: Job, progress: Progress) -> dict[str, str]:
    """Run the step; returns artifact -> path relative to out_dir."""
    declared: Stage = importlib.import_module(job.module).run
    keywords: dict[str, Any] = {
        "config" if section == declared.name else section: model.model_validate(job.sections[section])
        for section, model in declared.sections.items()
    }
    if job.check is not None:
        module, _, function = job.check.partition(":")
        getattr(importlib.import_module(module), function)(**keywords)
        return {}
    offered = {
        "out_dir": job.out_dir,
        "board": job.target.board if job.target else None,
        "target": job.target,
        "experiment": job.experiment,
        "progress": progress,
        "checkpoint": Checkpoint(job.checkpoint_dir),
    }
    keywords.update({name: offered[name] for name in declared.handed_in})
    result = declared.function(**job.artifacts, **keywords)
    outputs = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    for artifact, path in outputs.items():
        assert path.exists(), f"{declared.name}: promised {artifact} at {path} and did not write it"
    return {artifact: path.relative_to(job.out_dir).as_posix() for artifact, path in outputs.items()}


def _explained(error: Exception, job: Job) -> dict[str, Any]:
    """An error as an event; a full disk is recognised however a library words it."""
    full = isinstance(error, OSError) and error.errno in _NO_SPACE
    if not isinstance(error, PipelineError) and (full or shutil.disk_usage(job.out_dir).free < _FULL_BELOW_BYTES):
        error = DiskFull(getattr(error, "filename", None) or str(job.out_dir))
    if isinstance(error, PipelineError):
        told = {"event": "error", "message": str(error), "exit_code": error.exit_code, "trace": None}
        return {**told, "infrastructure": isinstance(error, HardwareError)}
    text = "".join(traceback.format_exception(error))
    return {"event": "error", "message": f"{type(error).__name__}: {error}", "exit_code": 1, "trace": text}


def end_with_engine(channel: socket.socket) -> None:
    """Watch the channel, and end this process when its other end is closed; nothing is ever sent through it."""

    def watch() -> None:
        channel.recv(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def work(job: Job, channel: socket.socket) -> NoReturn:
    """Execute a step, tell how it went, and end this process."""
    if str(job.root) not in sys.path[:1]:
        sys.path.insert(0, str(job.root))
    try:
        told: Mapping[str, Any] = {"event": "done", "outputs": call(job, _EventProgress(channel))}
    except Exception as error:  # noqa: BLE001 - the engine shows it; a worker has nobody else to tell
        told = _explained(error, job)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, told)
    # Libraries with threads of their own may crash or hang in their clean-up; the work is done and reported.
    os._exit(0)
