"""Takes in what a streaming instrument sends while the host is busy with the board.

The operating system's buffer of a serial port holds some kilobytes, so that somebody must read from the trigger on. A
thread calls `step` until it says that it has enough; what it raises comes out of `result`, in the caller's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline.errors import InstrumentError


class Collector:
    """A running thread; `result` waits for it, `cancel` ends it early."""

    def __init__(self, name: str, step: Callable[[], bool]) -> None:
        self._name, self._step = name, step
        self._cancelled = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"collector of {name}", daemon=True)
        self._thread.start()

    def result(self, limit_s: float) -> None:
        """Wait for the end; raises what the thread raised, or that it took too long."""
        self._thread.join(limit_s)
        late = self._thread.is_alive()
        self.cancel()
        if self._failure is not None:
            raise self._failure
        if late:
            raise InstrumentError(
                f"{self._name}: capture not complete after {limit_s:g} s; the trigger did not come, or it fell silent"
            )

    def cancel(self) -> None:
        self._cancelled.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while not self._cancelled.is_set() and not self._step():
                pass
        except Exception as error:  # noqa: BLE001 - carried over to the thread that asks for the result
            self._failure = error
