"""A SCPI instrument through PyVISA: commands whose errors are noticed, numbers whose count is checked, limits on waits.

PyVISA is imported when a session opens. The default library is pyvisa-py (`@py`), which needs no vendor software for
TCP sockets; `@ivi` uses an installed VISA, `FILE.yaml@sim` a pyvisa-sim definition. Every foreign exception becomes
`InstrumentError`, or `HardwareAbsent` where the instrument cannot be reached at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from hil.instruments.trace import FloatArray
from pipeline.errors import HardwareAbsent, InstrumentError

DataFormat = Literal["real32", "real64", "ascii"]
OVERLOAD = 9.0e37  # SCPI sends 9.9E37 for a reading beyond the range, 9.91E37 for no number
_ERROR_LIMIT = 20  # entries of an error queue
_POLL_S = 0.02
_CHUNK_BYTES = 1 << 20


class ScpiSession:
    """An open instrument; every reply comes within `reply_s`, or an `InstrumentError` does."""

    def __init__(self, address: str, *, library: str = "@py", reply_s: float = 5.0) -> None:
        import pyvisa

        self.address, self.name = address, address
        self._library, self._reply_s = library, reply_s
        self._failures = (pyvisa.errors.Error, OSError, ValueError)
        self._in_doubt = False  # a reply went wrong: its rest may still be on the way
        self._open()

    def _open(self) -> None:
        import pyvisa

        address, reply_s = self.address, self._reply_s
        try:
            manager = pyvisa.ResourceManager(self._library)
            resource: Any = manager.open_resource(address, open_timeout=round(1000 * reply_s))
        except Exception as error:  # pyvisa-py raises bare Exceptions when it cannot connect
            raise HardwareAbsent(
                f"{address}: cannot be opened ({error}); is the instrument on, and the address in bench.yaml right?"
            ) from error
        resource.read_termination = resource.write_termination = "\n"
        resource.timeout = 1000 * reply_s
        resource.chunk_size = _CHUNK_BYTES
        self._resource, self._in_doubt = resource, False
        try:
            self.identity = self._identify()
        except InstrumentError as error:
            self.close()
            raise HardwareAbsent(f"{error}; is the instrument on?") from error

    def close(self) -> None:
        try:
            self._resource.close()
        except self._failures:
            return  # it has gone already

    def make_ready(self) -> None:
        """Connect anew after a reply that went wrong: bytes of it must not be taken for the next one."""
        if self._in_doubt:
            self.close()
            self._open()

    def write(self, *commands: str) -> None:
        for command in commands:
            self._guard(command, partial(self._resource.write, command))

    def query(self, command: str) -> str:
        return str(self._guard(command, lambda: self._resource.query(command))).strip()

    def number(self, command: str) -> float:
        reply = self.query(command)
        try:
            return float(reply)
        except ValueError as error:
            self._in_doubt = True
            raise InstrumentError(f"{self.name}: replied {reply[:40]!r} to {command!r}, needed a number") from error

    def values(self, command: str, data_format: DataFormat) -> FloatArray:
        """The numbers that a query returns, as ASCII or as a definite length block."""
        if data_format == "ascii":
            got = self._guard(command, lambda: self._resource.query_ascii_values(command, container=np.array))
        else:
            item = {"real32": "f", "real64": "d"}[data_format]
            got = self._guard(
                command,
                lambda: self._resource.query_binary_values(
                    command, datatype=item, is_big_endian=True, container=np.array, chunk_size=_CHUNK_BYTES
                ),
            )
        return np.asarray(got, dtype=np.float64)

    def refuse_errors(self, after: str) -> None:
        """Empty the error queue; whatever it holds is raised."""
        found = []
        for _ in range(_ERROR_LIMIT):
            reply = self.query("SYST:ERR?")
            if reply.lstrip("+").startswith("0,"):
                break
            found.append(reply)
        if found:
            raise InstrumentError(f"{self.name}: reported {'; '.join(found)} after {after}")

    def await_capture(self, status: str, busy: int, limit_s: float, abort: str) -> None:
        """Poll the status until none of the busy bits is set; a capture that takes too long is aborted."""
        deadline = time.monotonic() + limit_s
        while int(self.number(status)) & busy:
            if time.monotonic() >= deadline:
                self.write(abort)
                raise InstrumentError(
                    f"{self.name}: not done after {limit_s:g} s; the trigger did not come,"
                    " is the timestamp pin wired to the trigger input?"
                )
            time.sleep(_POLL_S)

    def _identify(self) -> str:
        identity = self.query("*IDN?")
        maker, *rest = identity.split(",")
        if len(rest) < 2:
            raise InstrumentError(f"{self.address}: calls itself {identity[:60]!r}, needed maker, model, serial number")
        self.name = f"{rest[0].strip()} {rest[1].strip()}"
        return identity

    def _guard(self, command: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except self._failures as error:
            self._in_doubt = True
            raise InstrumentError(
                f"{self.name}: no usable reply to {command!r} ({str(error).splitlines()[0][:120]});"
                " is it still on and connected?"
            ) from error


def refuse_over_range(name: str, values: FloatArray, limit: float, unit: str, advice: str) -> None:
    """Readings that the instrument marks as beyond its range, or that are."""
    beyond = ~np.isfinite(values) | (np.abs(values) > limit)
    if np.any(beyond):
        first = int(np.flatnonzero(beyond)[0])
        raise InstrumentError(
            f"{name}: over-range, {int(np.count_nonzero(beyond))} of {len(values)} samples beyond {limit:g} {unit},"
            f" first at number {first}; {advice}"
        )


def refuse_lost(name: str, found: int, needed: int) -> None:
    if found != needed:
        raise InstrumentError(f"{name}: lost samples, {found} came, needed {needed}; measure again")
