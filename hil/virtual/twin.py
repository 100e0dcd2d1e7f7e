"""The virtual twin: QEMU's `mps2-an500` (Cortex-M7) running a twin image, with its UART on a TCP port of this machine.

With `counting=True` the clock is tied to the instruction count (`-icount shift=10`: one instruction = 1024 ns), so
that the image's timer counts instructions, exactly and reproducibly. Without it the machine runs free, as the
profiler plugin needs: under icount QEMU splits blocks at every device access, which would distort the block counts.

The listening socket is made here and handed over open, so no other process can take the port in between. QEMU waits
for the host before it runs the first instruction: not a byte of the start-up message is lost. It dies with its
parent.

Inputs and audio do not go through the UART, byte by byte, but straight into memory (`memory_probe.py`), and are then
announced to the image; the link checks them by CRC either way.

QEMU looks again whether the guest's UART takes bytes only when something wakes its main loop, and enabling the
receiver is not such a thing: bytes sent before could lie there for ever. So each sync also sends an empty line to
QEMU's monitor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from hil.link.device_link import DeviceLink
from hil.virtual.memory_probe import MemoryProbe
from hil.virtual.program import Symbol, read_program
from pipeline.errors import HardwareError, LinkTimeout, ToolError

PROGRAM = "qemu-system-arm"
MACHINE = "mps2-an500"
ICOUNT_SHIFT = 10  # 1024 ns an instruction: slow enough that the 25 MHz timer resolves single instructions
_INSTALL = "install it with: apt-get install --no-install-recommends qemu-system-arm"
_BOOT_S = 5.0
_STOP_S = 10.0
_PR_SET_PDEATHSIG = 1


class Twin:
    """A running twin; a context manager whose `link` is open and in sync."""

    def __init__(
        self,
        image: Path,
        *,
        name: str = "twin",
        counting: bool = True,
        arguments: Sequence[str] = (),
        sync_s: float = 30.0,
    ) -> None:
        self._image, self._name, self._sync_s = image, name, sync_s
        self._arguments = ("-icount", f"shift={ICOUNT_SHIFT}", *arguments) if counting else tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._probe_port = self.console_port = 0
        self._objects: Mapping[str, Symbol] | None = None  # read when first wanted
        self.link: DeviceLink

    def __enter__(self) -> Twin:
        program = qemu_path()
        if not self._image.is_file():
            raise ToolError(
                f"{self._name}: no twin image at {self._image}, needed a Cortex-M7 ELF; run the firmware step"
            )
        self._log = tempfile.TemporaryFile()
        try:
            with _listener() as listener, _listener() as probe:
                self.console_port, self._probe_port = (each.getsockname()[1] for each in (listener, probe))
                argv = self._argv(program, listener.fileno(), probe.fileno())
                self._process = subprocess.Popen(
                    argv,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=(listener.fileno(), probe.fileno()),
                    preexec_fn=_die_with_parent(),
                )
            self.link = DeviceLink.open(
                f"socket://127.0.0.1:{self.console_port}", name=self._name, nudge=self.wake, place=self.place
            )
            self.link.await_boot(min(_BOOT_S, self._sync_s))
            self.link.sync(self._sync_s)
        except HardwareError as error:
            raise self._explained(error, argv) from error
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End QEMU in good order (plugins write their results then), by force if it does not listen."""
        if hasattr(self, "link"):
            self.link.close()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.terminate()
            try:
                self._process.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdin.close()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wake(self) -> None:
        """Let QEMU look at its sockets."""
        self._monitor("")

    def press_reset(self) -> None:
        """Like the button on a board."""
        self._monitor("system_reset")

    def _monitor(self, command: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # QEMU is gone: the link will say so
                self._process.stdin.write(f"{command}\n".encode("ascii"))

    def place(self, name: str, data: bytes) -> bool:
        """Write into a named object of the image while the machine stands still; False if it has none of that size."""
        if self._objects is None:
            self._objects = read_program(self._image).objects
        target = self._objects.get(name)
        if target is None or target.size_bytes < len(data):
            return False
        with MemoryProbe(self._probe_port, self._name) as probe:
            probe.write(target.address, data)
        return True

    def _argv(self, program: str, console_fd: int, probe_fd: int) -> list[str]:
        console = f"socket,id=console,fd={console_fd},server=on,wait=on,nodelay=on"
        probe = f"socket,id=probe,fd={probe_fd},server=on,wait=off,nodelay=on"
        machine = [program, "-machine", MACHINE, "-nodefaults", "-display", "none", "-monitor", "stdio"]
        return [
            *machine,
            "-chardev",
            console,
            "-serial",
            "chardev:console",
            "-chardev",
            probe,
            "-gdb",
            "chardev:probe",
            *self._arguments,
            "-kernel",
            str(self._image),
        ]

    def _explained(self, error: HardwareError, argv: Sequence[str]) -> ToolError | HardwareError:
        """Why the twin did not answer: QEMU itself gave up, or the image is silent."""
        assert self._process is not None and self._log is not None
        try:  # QEMU's own exit comes a moment after the socket breaks
            exit_code = self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            exit_code = None
        self._log.seek(0)
        output = self._log.read().decode(errors="replace")
        self.stop()
        if exit_code is not None:
            return ToolError.failed(argv, exit_code, output)
        return LinkTimeout(f"{error} QEMU runs {self._image.name}, but the image does not speak the protocol.")


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=1)


def qemu_path() -> str:
    """Where QEMU is."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise ToolError.missing(PROGRAM, "to run the virtual twin of the board", _INSTALL)
    return program


def qemu_version() -> str:
    """The version QEMU reports, such as 7.2.22."""
    argv = [qemu_path(), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    words = done.stdout.split()
    if done.returncode != 0 or "version" not in words:
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
    return words[words.index("version") + 1]


def _die_with_parent() -> Callable[[], None] | None:
    """To be run in the child: the kernel ends it when the parent is gone, however that happened (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # the parent died before the request
            os._exit(1)

    return ask_kernel
