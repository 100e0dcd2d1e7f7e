"""Every error the user may meet, one tree.

    PipelineError            exit code 1
    ├── ConfigError          exit code 2: pipeline.yaml, --set or the command line is wrong
    ├── StageError           a step could not do its work
    ├── CacheError           the cache could not be read or written (a damaged entry is rebuilt, not raised)
    ├── DiskFull             no space left while writing
    ├── ToolError            an external program is missing, failed or took too long
    └── HardwareError        a board or instrument misbehaved
        ├── HardwareAbsent   exit code 3: the board asked for is not attached
        ├── LinkTimeout      the device did not answer in time
        ├── DeviceFault      the device answered with a fault
        └── InstrumentError  the power meter lost samples, overran or was not triggered

A message is one sentence: where, what was found, what was needed, what to do next. Lower case, with units.
"""

from __future__ import annotations

from collections.abc import Sequence

LAST_LINES = 20


class PipelineError(Exception):
    """Base of all errors that are shown to the user as one sentence instead of a traceback."""

    exit_code = 1


class ConfigError(PipelineError):
    """A key, type, unit or value in the configuration is wrong."""

    exit_code = 2


class StageError(PipelineError):
    """A step refused its input or could not reach its goal."""


class CacheError(PipelineError):
    """The cache directory cannot be used."""


class DiskFull(PipelineError):
    """No space left while writing."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: disk full while writing, nothing half-written is kept; "
            "free some space, for instance with: pipeline gc --max-size 1GB"
        )


class ToolError(PipelineError):
    """An external program is missing, failed or took too long."""

    @classmethod
    def missing(cls, program: str, needed_for: str, install: str) -> ToolError:
        return cls(f"{program}: not found on PATH, needed {needed_for}; {install}")

    @classmethod
    def failed(cls, argv: Sequence[str], exit_code: int, output: str) -> ToolError:
        tail = "\n".join(f"    {line}" for line in output.strip().splitlines()[-LAST_LINES:])
        return cls(f"{argv[0]}: exit code {exit_code}, needed 0, from: {' '.join(argv)}\n{tail}")

    @classmethod
    def timed_out(cls, argv: Sequence[str], limit_s: float) -> ToolError:
        return cls(f"{argv[0]}: still running after {limit_s:g} s, ended, from: {' '.join(argv)}")


class HardwareError(PipelineError):
    """A board or an instrument misbehaved."""


class HardwareAbsent(HardwareError):
    """The board that was asked for is not attached."""

    exit_code = 3


class LinkTimeout(HardwareError):
    """The device did not answer in time."""


class DeviceFault(HardwareError):
    """The device answered with an error or a fault."""


class InstrumentError(HardwareError):
    """A power meter lost samples, overran, or was not triggered."""
