"""A fake that answers in a thread of its own while a context lasts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

_JOIN_S = 10.0


class Background(ABC):
    """`_serve` runs until `_stopping` is set; `_close` lets go of what it used."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_S)
        self._close()

    @abstractmethod
    def _serve(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...
