"""A folder over SFTP on 127.0.0.1, and a proxy before it that cuts, alters and delays what passes through it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko  # type: ignore[import-untyped]

_CHUNK_BYTES = 1 << 15


class _OneKey(paramiko.ServerInterface):  # type: ignore[misc]
    """Whoever has the key may open a session."""

    def __init__(self, key: paramiko.PKey) -> None:
        self._key = key

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return int(paramiko.AUTH_SUCCESSFUL if key == self._key else paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)


class _Handle(paramiko.SFTPHandle):  # type: ignore[misc]
    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class _Files(paramiko.SFTPServerInterface):  # type: ignore[misc]
    """The files of this machine, errors as SFTP has them."""

    def _asked(self, act: Callable[[], Any]) -> Any:
        try:
            result = act()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return paramiko.SFTP_OK if result is None else result

    def list_folder(self, path: str) -> Any:
        def listed() -> list[Any]:
            with os.scandir(path) as children:
                return [paramiko.SFTPAttributes.from_stat(child.stat(), child.name) for child in children]

        return self._asked(listed)

    def stat(self, path: str) -> Any:
        return self._asked(lambda: paramiko.SFTPAttributes.from_stat(os.stat(path)))

    lstat = stat

    def open(self, path: str, flags: int, attr: Any) -> Any:
        def opened() -> Any:
            handle = _Handle(flags)
            mode = "r+b" if flags & (os.O_WRONLY | os.O_RDWR) else "rb"
            file = os.fdopen(os.open(path, flags, 0o666) if mode == "rb" else _for_writing(path, flags), mode)
            handle.readfile = handle.writefile = file
            return handle

        return self._asked(opened)

    def remove(self, path: str) -> Any:
        return self._asked(lambda: os.remove(path))

    def posix_rename(self, oldpath: str, newpath: str) -> Any:
        return self._asked(lambda: os.replace(oldpath, newpath))

    def mkdir(self, path: str, attr: Any) -> Any:
        return self._asked(lambda: os.mkdir(path))


def _for_writing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_WRONLY | os.O_RDWR, 0o666)


@contextlib.contextmanager
def sftp_server(home: Path) -> Iterator[int]:
    """Yields its port; the key that opens it is put where SSH looks for one below `home`."""
    host, user = paramiko.RSAKey.generate(2048), paramiko.RSAKey.generate(2048)
    (home / ".ssh").mkdir(parents=True)
    user.write_private_key_file(str(home / ".ssh" / "id_rsa"))
    sessions: list[paramiko.Transport] = []

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                session = paramiko.Transport(listening.accept()[0])
                session.add_server_key(host)
                session.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
                with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # cut during the greeting
                    session.start_server(event=threading.Event(), server=_OneKey(user))
                sessions.append(session)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            for session in sessions:
                session.close()


@dataclass
class LineProxy:
    """Before `port`: of the packets that it answers with a share is cut off, altered or late, in turns."""

    port: int
    share: float
    rng: random.Random
    told: dict[str, int] = field(default_factory=dict)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def fault(self) -> str | None:
        with self.mutex:
            if self.rng.random() >= self.share:
                return None
            chosen = ("slow", "cut", "altered")[sum(self.told.values()) % 3]
            self.told[chosen] = self.told.get(chosen, 0) + 1
            return chosen

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
            yield int(listening.getsockname()[1])
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
                for source, sink, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._relay, args=(source, sink, is_answer), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(_CHUNK_BYTES):
                fault = self.fault() if is_answer else None
                if fault == "cut":
                    break
                if fault == "altered":
                    content = content[:-1] + bytes([content[-1] ^ 1])
                if fault == "slow":
                    time.sleep(0.05)
                sink.sendall(content)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()  # the other direction closes the other one
