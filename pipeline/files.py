"""Texts and folders that the engine keeps: a file is replaced whole or not at all.

Paths are plain strings and system calls few: every step writes half a dozen such files, and whenever one thread is in
the system another one takes the interpreter away from it.
"""

from __future__ import annotations

import os
import threading


def replace_text(path: str, text: str, *, final: bool = False) -> None:
    """Whoever reads it meanwhile sees the old text or the new one. A final one is read-only, and it is on the disk."""
    folder, name = os.path.split(path)
    fresh = f"{folder}/.{name}.{os.getpid()}.{threading.get_ident()}"
    write_text(fresh, text, final=final)
    os.replace(fresh, path)
    if final:
        sync_folder(folder)


def write_text(path: str, text: str, *, final: bool = False) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
        if final:
            settle(descriptor)
    finally:
        os.close(descriptor)


def settle(descriptor: int) -> None:
    """Force a file to the disk, and let nobody write to it any more."""
    os.fsync(descriptor)
    os.fchmod(descriptor, 0o444)


def sync_folder(path: str) -> None:
    """Force the names in it to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_folder(path: str) -> None:
    if not os.path.isdir(path):  # as nearly always, in one call instead of three
        os.makedirs(path, exist_ok=True)
