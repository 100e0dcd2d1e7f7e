"""Locks between real processes: two jobs at once, a holder that is killed, what people are told."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from hil.bench.locks import FOLDER_NAME, LENT, Lock, board_lock, default_folder, instrument_lock
from pipeline.errors import HardwareError

ROOT = Path(__file__).resolve().parents[3]

HOLD = """
import sys, time
from pathlib import Path
from hil.bench.locks import board_lock
with board_lock(sys.argv[2], folder=Path(sys.argv[1]), purpose="a test"):
    print("held", flush=True)
    sys.stdin.read()
"""

COUNT = """
import sys, time
from pathlib import Path
from hil.bench.locks import board_lock
folder, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(15):
    with board_lock("066D", folder=folder, timeout_s=60):
        value = int(counter.read_text())
        time.sleep(0.002)
        counter.write_text(str(value + 1))
"""

FORK = """
import os, sys, time
from pathlib import Path
from hil.bench.locks import board_lock
lock = board_lock("066D", folder=Path(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    lock.release()
    print("child", os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""

AS_NOBODY = """
import os, sys
from pathlib import Path
from hil.bench.locks import board_lock
from pipeline.errors import HardwareError
os.setgid(65534)
os.setuid(65534)
try:
    board_lock("066D", folder=Path(sys.argv[1])).acquire()
    print("taken")
except HardwareError as error:
    print(error)
"""


def python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(code, *arguments):
    output, _ = python(code, *arguments).communicate(timeout=60)
    return output


@contextmanager
def holder(folder, serial="066D"):
    process = python(HOLD, folder, serial)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_job_is_told_who_holds_the_board(tmp_path):
    with holder(tmp_path) as process:
        began = time.monotonic()
        with pytest.raises(HardwareError) as refused, board_lock("066D", folder=tmp_path, timeout_s=0.5):
            pass
        assert 0.4 < time.monotonic() - began < 5.0
    message = str(refused.value)
    assert message.startswith(f"board 066D: in use still after 0.5 s, held by process {process.pid} of ")
    assert "for a test; wait for that job or end it" in message


def test_another_board_is_free_meanwhile(tmp_path):
    with holder(tmp_path, "066D"), board_lock("066E", folder=tmp_path) as lock:
        assert lock.holder().pid == os.getpid()


def test_a_killed_holder_leaves_the_board_free(tmp_path):
    lock = board_lock("066D", folder=tmp_path)
    with holder(tmp_path) as process:
        assert lock.holder().pid == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        assert f'"pid": {process.pid}' in lock.path.read_text()  # the note is left behind, and means nothing
        assert lock.holder() is None
        with lock:
            assert lock.holder().pid == os.getpid()


def test_a_waiting_job_gets_the_board_when_its_holder_is_killed(tmp_path):
    with holder(tmp_path) as process:
        threading.Timer(0.3, process.kill).start()
        with board_lock("066D", folder=tmp_path, timeout_s=30) as lock:
            assert lock.holder().pid == os.getpid()


def test_three_jobs_at_once_never_meet(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    jobs = [python(COUNT, tmp_path / "locks", counter) for _ in range(3)]
    for job in jobs:
        job.communicate(timeout=100)
    assert [job.returncode for job in jobs] == [0, 0, 0]
    assert counter.read_text() == "45"


def test_two_locks_in_one_process_exclude_each_other_too(tmp_path):
    with (
        board_lock("066D", folder=tmp_path),
        pytest.raises(HardwareError, match=f"in use now, held by process {os.getpid()}"),
    ):
        board_lock("066D", folder=tmp_path).acquire()


def test_a_lock_is_free_after_its_context_also_after_an_error(tmp_path):
    lock = board_lock("066D", folder=tmp_path)
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert lock.holder() is None
    assert lock.path.read_text() == ""
    lock.release()  # once more does no harm
    with lock, pytest.raises(HardwareError, match="this job holds its lock already"):
        lock.acquire()


def test_a_forked_child_neither_releases_nor_keeps_the_lock(tmp_path):
    lock, parent = board_lock("066D", folder=tmp_path), python(FORK, tmp_path)
    word, child = parent.stdout.readline().split()
    try:
        assert word == "child"  # its release did not fail
        assert lock.holder().pid == parent.pid
        parent.kill()
        parent.wait(timeout=10)
        assert lock.holder() is None  # though the child lives on
    finally:
        os.kill(int(child), signal.SIGKILL)
        parent.kill()
        parent.communicate()


def test_every_user_may_use_folder_and_files_whatever_the_umask(tmp_path):
    folder, before = tmp_path / "locks", os.umask(0o077)
    try:
        with board_lock("066D", folder=folder) as lock:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert stat.S_IMODE(lock.path.stat().st_mode) == 0o666
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user: sudo pytest")
def test_two_users_share_a_lock():
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        folder.chmod(0o755)
        (folder / "locks").mkdir()
        (folder / "locks").chmod(0o1777)
        with board_lock("066D", folder=folder / "locks", purpose="root's job"):
            assert "for root's job" in run(AS_NOBODY, folder / "locks")
        assert run(AS_NOBODY, folder / "locks") == "taken\n"
    finally:
        shutil.rmtree(folder)


def test_names_are_kept_apart_in_the_file_system(tmp_path):
    names = ["board a/b", "board a_b", "board a:b", "instrument TCPIP::1.2.3.4::5025::SOCKET", "board ../../x"]
    paths = {Lock(name, folder=tmp_path).path for name in names}
    assert len(paths) == len(names)
    assert {path.parent for path in paths} == {tmp_path}
    assert instrument_lock("x", folder=tmp_path).path != board_lock("x", folder=tmp_path).path


def test_a_damaged_note_is_no_obstacle(tmp_path):
    lock = board_lock("066D", folder=tmp_path)
    lock.path.write_text("{not json")
    with lock:
        lock.path.write_text("[]")
        with pytest.raises(HardwareError, match="held by process 0 of somebody on this machine"):
            board_lock("066D", folder=tmp_path).acquire()


def test_a_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HardwareError, match="needed a folder that everybody may write to"):
        board_lock("066D", folder=tmp_path / "file").acquire()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(HardwareError, match="needed a folder that everybody may write to"):
        board_lock("066D", folder=tmp_path / "link").acquire()


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path):
    lock, elsewhere = board_lock("066D", folder=tmp_path), tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    lock.path.symlink_to(elsewhere)
    with pytest.raises(HardwareError, match="the lock cannot be opened"):
        lock.acquire()
    with pytest.raises(HardwareError, match="the lock cannot be looked at"):
        lock.holder()
    assert elsewhere.read_text() == "precious"


def test_the_default_folder_is_the_same_for_everybody():
    assert default_folder().name == FOLDER_NAME
    assert Lock("board x").path.parent == default_folder()


def test_a_worker_lends_its_board_to_one_job_at_a_time(tmp_path, monkeypatch):
    with board_lock("066B", folder=tmp_path, purpose="offered"):
        monkeypatch.setenv(LENT, "066B")
        with board_lock("066B", folder=tmp_path, purpose="measure"):
            with pytest.raises(HardwareError, match="held by .*measure"):
                board_lock("066B", folder=tmp_path).acquire()
            with board_lock("0000", folder=tmp_path):
                pass
        monkeypatch.delenv(LENT)
        with pytest.raises(HardwareError, match="held by .*offered"):
            board_lock("066B", folder=tmp_path).acquire()
