"""A URL (`file://`, `s3://`, `gs://`, `sftp://`, by fsspec) -> named objects, read and written whole, with retries.

Where the back end has folders and renames (plain files, SFTP) an object is written beside its place and renamed; object
stores put one at once anyway. Credentials come from the usual places of each back end; a sentence about a failure never
holds one.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pipeline.errors import ConfigError, PipelineError

_T = TypeVar("_T")
_ATTEMPTS = 5
_FIRST_DELAY_S = 0.2  # doubled each time: 3 s in all
_CONNECT_S, _ANSWER_S = 5, 20
_LINES = {"sftp", "ssh"}  # back ends that keep one connection
_RENAMES = {"file", "local", *_LINES}
_EXTRA = {
    "s3": "tinyml-pipeline[store]",
    "sftp": "tinyml-pipeline[store]",
    "ssh": "tinyml-pipeline[store]",
    "gs": "gcsfs",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    # One retry policy, ours: theirs would multiply with it.
    "s3": {
        "config_kwargs": {
            "connect_timeout": _CONNECT_S,
            "read_timeout": _ANSWER_S,
            "retries": {"total_max_attempts": 1},
        },
        "use_listings_cache": False,
    },
    **dict.fromkeys(_LINES, {"timeout": _CONNECT_S, "banner_timeout": _ANSWER_S, "auth_timeout": _ANSWER_S}),
}
_NOWHERE = logging.NullHandler()  # without one paramiko shows a traceback for each line that is cut
_SECRET_NAMES = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|ACCESS_KEY", re.IGNORECASE)


class StoreError(PipelineError):
    """The shared store did not do what it was asked, also not when asked again."""


@dataclass(frozen=True)
class Listed:
    """An object as the store lists it."""

    name: str
    size_bytes: int
    changed: float  # seconds since 1970


class Bucket:
    """The objects below one URL. `sleep` is what it waits with between attempts."""

    def __init__(self, url: str, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(url)
        if parts.password:
            raise ConfigError(
                f"store {parts.scheme}://…@{parts.hostname}: holds a password, needed a URL without; "
                "leave it to the back end: keys, ~/.ssh/config, environment"
            )
        self.url, self._sleep = url.rstrip("/"), sleep
        self._scheme = parts.scheme or "file"
        self._random = random.Random()
        self._fs: Any = None  # opened when it is first asked: a host that is down must not end the run
        self._root = _root(self.url, self._scheme).rstrip("/")

    def __str__(self) -> str:
        return self.url

    def read(self, name: str) -> bytes | None:
        """The bytes of an object; None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self._tried("read", name, lambda: bytes(self._fs.cat_file(self._path(name))))
        return None

    def fetch(self, name: str, to: Path) -> bool:
        """Copy an object into a file; False if there is none."""
        with contextlib.suppress(FileNotFoundError):
            self._tried("read", name, lambda: self._fs.get_file(self._path(name), str(to)))
            return True
        return False

    def write(self, name: str, content: bytes) -> None:
        self._tried("write", name, lambda: self._placed(name, lambda path: self._fs.pipe_file(path, content)))

    def send(self, file: Path, name: str) -> None:
        """Copy a file into an object."""
        self._tried("write", name, lambda: self._placed(name, lambda path: self._fs.put_file(str(file), path)))

    def size_bytes(self, name: str) -> int | None:
        """None if there is no such object."""
        with contextlib.suppress(FileNotFoundError):
            found = self._tried("look for", name, lambda: self._fs.info(self._path(name)))
            return int(found["size"])
        return None

    def remove(self, name: str) -> None:
        """Also if it is gone already."""
        with contextlib.suppress(FileNotFoundError):
            self._tried("remove", name, lambda: self._fs.rm_file(self._path(name)))

    def names(self, prefix: str) -> Iterator[Listed]:
        """Every object below a prefix that ends at a slash."""

        def listed() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(prefix), detail=True)
            assert isinstance(found, dict)
            return found

        with contextlib.suppress(FileNotFoundError):
            for path, info in self._tried("list", prefix, listed).items():
                yield Listed(path.removeprefix(f"{self._root}/"), int(info.get("size") or 0), _changed(info))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _placed(self, name: str, write: Callable[[str], Any]) -> None:
        if self._scheme not in _RENAMES:
            write(self._path(name))
            return
        final = self._path(name)
        beside = f"{final}.{uuid.uuid4().hex}.tmp"
        self._fs.makedirs(final.rpartition("/")[0], exist_ok=True)
        try:
            write(beside)
            self._fs.mv(beside, final)
        finally:
            with contextlib.suppress(OSError):
                if self._fs.exists(beside):
                    self._fs.rm_file(beside)

    def _hang_up(self) -> None:
        """What is cut stays so: the next attempt has a connection of its own."""
        cut, self._fs = self._fs, None
        if cut is not None:
            cut.client.close()

    def _tried(self, what: str, name: str, act: Callable[[], _T]) -> _T:
        for attempt in range(_ATTEMPTS):
            try:
                if attempt and self._scheme in _LINES:
                    self._hang_up()
                if self._fs is None:
                    self._fs = _filesystem(self.url, self._scheme)
                return act()
            except FileNotFoundError:
                raise
            except Exception as error:  # noqa: BLE001 - every back end has errors of its own
                last = error
                if isinstance(error, PermissionError):
                    break
                if attempt < _ATTEMPTS - 1:
                    self._sleep(_FIRST_DELAY_S * 2**attempt * self._random.uniform(0.5, 1.0))
        raise StoreError(
            f"store {self}: cannot {what} {name} ({_without_secrets(last)}); "
            "check the address, the network and your rights, or leave out `store`"
        ) from None  # a traceback would show what the sentence hides


def _root(url: str, scheme: str) -> str:
    """The path in a URL, without a connection; ConfigError where the back end is not installed."""
    import fsspec  # type: ignore[import-untyped]

    try:
        return str(fsspec.get_filesystem_class(scheme)._strip_protocol(url))
    except ImportError as error:
        package = _EXTRA.get(scheme, "what it names")
        raise ConfigError(f"store {url}: {error}; install it with: pip install '{package}'") from None
    except Exception as error:  # noqa: BLE001 - every back end has errors of its own
        raise ConfigError(f"store {url}: cannot be opened ({_without_secrets(error)}); check the address") from None


def _filesystem(url: str, scheme: str) -> Any:
    import fsspec

    found, _ = fsspec.core.url_to_fs(url, skip_instance_cache=True, **_OPTIONS.get(scheme, {}))
    if scheme == "s3":
        found.retries = 1
    if scheme in _LINES:
        found.ftp.get_channel().settimeout(_ANSWER_S)
        logging.getLogger("paramiko").addHandler(_NOWHERE)
    return found


def _changed(info: dict[str, Any]) -> float:
    """Object stores give a date, file systems a number."""
    for key in ("LastModified", "mtime", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return time.time()  # never older than it is known to be


def _without_secrets(error: BaseException) -> str:
    """One line, with whatever the environment calls a secret left out."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    for name, value in os.environ.items():
        if len(value) >= 4 and _SECRET_NAMES.search(name):
            text = text.replace(value, "…")
    return text
