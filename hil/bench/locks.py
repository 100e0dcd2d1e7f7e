"""One board, one job, across processes and users: advisory locks (flock) on files in a shared folder.

The lock is the kernel's, not the file's: it goes with its process, also with one killed by -9, so that nothing is ever
stale. The note in the file (who, where, since when) is for people; where the lock is free, a note left behind means
nothing. Files are never deleted: whoever waits for one would then hold a lock on a name that is gone.

The folder is writable for everybody, with the sticky bit, and so are the files. Linux refuses O_CREAT
on other people's files in such folders (fs.protected_regular), hence they are opened without it, and created only if
there is none. A child made by fork without exec lets go of the locks of its parent, which keeps them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import re
import socket
import stat
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from pipeline.errors import HardwareError

FOLDER_NAME = "tinyml-bench-locks"
LENT = "TINYML_LENT_BOARD"  # environment: serial number of the board that `pipeline worker` holds for this process
_POLL_S = 0.05
_GRACE_S = 0.2  # somebody who looks for the holder takes the lock for an instant
_NOTE_BYTES = 4096
_held: set[int] = set()  # descriptors of this process


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as its note says."""

    pid: int
    user: str
    host: str
    since: str  # UTC, ISO 8601
    purpose: str = ""

    def __str__(self) -> str:
        what = f" for {self.purpose}" if self.purpose else ""
        return f"process {self.pid} of {self.user} on {self.host} since {self.since}{what}"


class Lock:
    """A named lock; a context manager that waits for it at most `timeout_s`."""

    def __init__(self, name: str, *, folder: Path | None = None, timeout_s: float = 0.0, purpose: str = "") -> None:
        self.name, self._timeout_s, self._purpose = name, timeout_s, purpose
        self._folder = default_folder() if folder is None else folder
        self._descriptor = -1

    @property
    def path(self) -> Path:
        """Where the worker that offers a board holds its lock, its jobs keep each other away by another one."""
        is_lent = self.name == f"board {os.environ.get(LENT)}"
        return self._folder / f"{_file_name(self.name)}{'.lent' if is_lent else ''}.lock"

    def acquire(self) -> None:
        """Take the lock, or raise with the name of its holder."""
        if self._descriptor >= 0:
            raise HardwareError(f"{self.name}: this job holds its lock already")
        _make_folder(self._folder)
        descriptor = _open_shared(self.path)
        try:
            deadline = time.monotonic() + max(self._timeout_s, _GRACE_S)
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise HardwareError(self._refusal(descriptor))
                time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            _write_note(descriptor, self._purpose)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(descriptor)

    def release(self) -> None:
        """Let go; nothing happens where nothing is held."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0 or descriptor not in _held:  # the latter: a forked child has no part in it
            return
        _held.discard(descriptor)
        with contextlib.suppress(OSError):  # a full disk must not keep the board
            os.ftruncate(descriptor, 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def holder(self) -> Holder | None:
        """Who holds it now: None if nobody does, whatever a note left behind says."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HardwareError(f"{self.path}: the lock cannot be looked at ({error.strerror})") from error
        try:
            return None if _try_lock(descriptor, shared=True) else _read_note(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _refusal(self, descriptor: int) -> str:
        waited = f"still after {self._timeout_s:g} s" if self._timeout_s else "now"
        return (
            f"{self.name}: in use {waited}, held by {_read_note(descriptor)}; wait for that job or end it"
            f" (lock {self.path})"
        )


def board_lock(probe_serial: str, *, folder: Path | None = None, timeout_s: float = 0.0, purpose: str = "") -> Lock:
    """The lock of a board, by the serial number of its probe."""
    return Lock(f"board {probe_serial}", folder=folder, timeout_s=timeout_s, purpose=purpose)


def instrument_lock(address: str, *, folder: Path | None = None, timeout_s: float = 0.0, purpose: str = "") -> Lock:
    """The lock of an instrument, by its address: two boards may share one, two jobs may not."""
    return Lock(f"instrument {address}", folder=folder, timeout_s=timeout_s, purpose=purpose)


def default_folder() -> Path:
    """The same for every user of the machine."""
    return Path(tempfile.gettempdir()) / FOLDER_NAME


def _file_name(name: str) -> str:
    """A file name that says what is locked; different names stay different."""
    return re.sub(r"[^A-Za-z0-9._-]", lambda match: f"~{ord(match[0]):x}~" if match[0] != " " else "+", name)


def _make_folder(folder: Path) -> None:
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # mkdir's own mode is cut by the umask
        found = folder.lstat()
    except OSError as error:
        raise HardwareError(f"{folder}: the folder of the locks cannot be made ({error.strerror})") from error
    deadline = time.monotonic() + _GRACE_S  # its maker may be about to give it its mode
    while stat.S_ISDIR(found.st_mode) and not os.access(folder, os.W_OK | os.X_OK) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if not stat.S_ISDIR(found.st_mode) or not os.access(folder, os.W_OK | os.X_OK):
        raise HardwareError(
            f"{folder}: needed a folder that everybody may write to, for the locks of the boards; chmod 1777 it"
        )


def _open_shared(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(20):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue  # somebody was faster: open theirs
            os.fchmod(descriptor, 0o666)  # whatever the umask says
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise HardwareError(f"{path}: the lock cannot be opened ({error.strerror})") from error
            time.sleep(_POLL_S)  # its maker may be about to give it its mode
    raise HardwareError(f"{path}: the lock is not writable for this user; its owner should chmod 666 it")


def _try_lock(descriptor: int, shared: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_note(descriptor: int, purpose: str) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), _user(), socket.gethostname(), since, purpose)
    with contextlib.suppress(OSError):  # the lock holds without its note
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)


def _read_note(descriptor: int) -> Holder:
    try:
        return Holder(**json.loads(os.pread(descriptor, _NOTE_BYTES, 0)))
    except (OSError, ValueError, TypeError):
        return Holder(0, "somebody", "this machine", "a moment ago")  # its note is not written yet


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _forget_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)  # closing a copy does not unlock: the parent keeps its lock
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
