"""How a worker words an error, what versions a program has, and the JSON that steps exchange."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.engine.tool_versions import package_version, program_version, require_package, require_program
from pipeline.engine.worker import _FULL_BELOW_BYTES, Job, _explained
from pipeline.errors import ConfigError, LinkTimeout, StageError, ToolError
from pipeline.stage import read_json, write_json


@pytest.fixture
def job(tmp_path: Path) -> Job:
    rest = {"artifacts": {}, "sections": {}, "experiment": "bread", "target": None, "checkpoint_dir": tmp_path}
    return Job(root=tmp_path, module="toy", out_dir=tmp_path, **rest)


@pytest.mark.parametrize(
    ("error", "code", "infrastructure", "message"),
    [
        (StageError("cracked"), 1, False, "cracked"),
        (ConfigError("unknown key"), 2, False, "unknown key"),
        (LinkTimeout("silent"), 1, True, "silent"),
        (OSError(errno.ENOSPC, "No space left", "/big"), 1, False, "/big: disk full while writing"),
        (OSError(errno.EDQUOT, "Quota"), 1, False, "{out_dir}: disk full while writing"),
        (OSError(errno.ENOENT, "No such file"), 1, False, "FileNotFoundError: [Errno 2] No such file"),
        (ValueError("seven"), 1, False, "ValueError: seven"),
    ],
)
def test_every_error_becomes_one_event(
    job: Job, error: Exception, code: int, infrastructure: bool, message: str
) -> None:
    told = _explained(error, job)
    assert told["message"].startswith(message.format(out_dir=job.out_dir))
    assert (told["exit_code"], told.get("infrastructure", False)) == (code, infrastructure)
    assert bool(told["trace"]) == ("Error: " in message), "a traceback for bugs alone"


def test_a_disk_that_is_nearly_full_explains_whatever_failed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _FULL_BELOW_BYTES == 1_048_576
    for free, full in ((_FULL_BELOW_BYTES - 1, True), (_FULL_BELOW_BYTES, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, free=free: shutil._ntuple_diskusage(9, 9, free))
        assert ("disk full" in _explained(RuntimeError("write"), job)["message"]) == full
        assert _explained(StageError("cracked"), job)["message"] == "cracked"


def test_the_version_of_a_program_is_its_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, body, version in (
        ("toy-out", "echo ' toy 1.0 '; echo more", "toy 1.0"),
        ("toy-err", "echo toy 2.0 >&2", "toy 2.0"),
        ("toy-mute", "exit 0", "unknown"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
        assert program_version(name) == version
        require_program(name, "mill", {})
    (tmp_path / "toy-bad").write_text("#!/no/such/shell\n")
    (tmp_path / "toy-bad").chmod(0o755)
    with pytest.raises(ToolError, match="toy-bad: cannot be started .*; install toy-bad again"):
        program_version("toy-bad")
    assert program_version("toy-none") is None and package_version("toy-none") is None
    require_package("pydantic", "mill")
    with pytest.raises(ToolError, match="mill: Python package toy-none is not installed; install it with: pip install"):
        require_package("toy-none", "mill")
    with pytest.raises(ToolError, match="toy-none: not found on PATH, needed by step mill; install it or"):
        require_program("toy-none", "mill", {"other": "apt-get"})


@dataclass
class Loaf:
    weight_g: int
    slices: tuple[int, ...]


def test_equal_values_are_equal_bytes(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", Loaf(500, (1, 2)))
    assert path.read_text() == '{\n  "slices": [\n    1,\n    2\n  ],\n  "weight_g": 500\n}\n'
    assert read_json(path) == {"weight_g": 500, "slices": [1, 2]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"share": float("nan")})
    path.write_text("{")
    with pytest.raises(StageError, match="a.json: not readable as JSON .*; remove it and run the step again"):
        read_json(path)
