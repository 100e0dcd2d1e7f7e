"""Downloads from a local web server: whole and verified, or a sentence; never something half that looks whole."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from data.fetching.download import Listener, Unreachable, fetch
from data.fetching.manifest import Archive
from pipeline.errors import DiskFull, StageError

CONTENT = np.random.default_rng(3).integers(0, 256, 3_500_000, dtype=np.uint8).tobytes()
QUIET = Listener(start=lambda total, unit: None, advance=lambda count: None)


def archive(url: str, content: bytes = CONTENT) -> Archive:
    return Archive(url=url, sha256=hashlib.sha256(content).hexdigest())


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_arrives_whole_and_is_not_asked_for_again(server, tmp_path: Path) -> None:
    server.files["set.tar.gz"] = CONTENT
    wanted = archive(server.url("set.tar.gz"))
    assert fetch(wanted, tmp_path / "new", QUIET).read_bytes() == CONTENT
    fetch(wanted, tmp_path / "new", QUIET)
    assert server.asked == [None]
    assert left_in(tmp_path / "new") == ["set.tar.gz"]


def test_a_connection_that_breaks_off_is_continued_where_it_stopped(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    server.cut_after = [1_000_000, 2_000_000]
    assert fetch(archive(server.url("set")), tmp_path, QUIET).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000000-", "bytes=3000000-"]


def test_network_gone_in_the_middle_keeps_what_came_and_the_next_run_continues(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    server.cut_after = [1_000_000, 0, 0, 0]
    with pytest.raises(Unreachable, match=r"cannot be downloaded \(the connection broke off\), 1000000 bytes are kept"):
        fetch(archive(server.url("set")), tmp_path, QUIET)
    assert left_in(tmp_path) == ["set.part"] and len(server.asked) == 4, "nothing that looks whole"
    assert fetch(archive(server.url("set")), tmp_path, QUIET).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=1000000-"
    assert left_in(tmp_path) == ["set"]


def test_a_server_without_ranges_sends_everything_again(server, tmp_path: Path) -> None:
    server.files["set"], server.knows_ranges = CONTENT, False
    server.cut_after = [1_000_000]
    assert fetch(archive(server.url("set")), tmp_path, QUIET).read_bytes() == CONTENT


def test_a_part_that_is_already_all_is_verified_without_a_download(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    (tmp_path / "set.part").write_bytes(CONTENT)
    assert fetch(archive(server.url("set")), tmp_path, QUIET).read_bytes() == CONTENT


def test_wrong_sha256_is_refused_and_removed(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(StageError, match="sha256 is [0-9a-f]{64}, needed [0-9a-f]{64}; it is removed"):
        fetch(archive(server.url("set")), tmp_path, QUIET)
    assert left_in(tmp_path) == []


def test_a_stale_part_of_another_file_does_not_survive(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    (tmp_path / "set.part").write_bytes(bytes(500))
    with pytest.raises(StageError, match="it is removed: run again"):
        fetch(archive(server.url("set")), tmp_path, QUIET)
    assert fetch(archive(server.url("set")), tmp_path, QUIET).read_bytes() == CONTENT


def test_missing_file_tells_the_status(server, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="HTTP status 404, needed 200"):
        fetch(archive(server.url("gone")), tmp_path, QUIET)


def test_host_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Unreachable) as caught:
        fetch(archive(f"http://127.0.0.1:{port}/set"), tmp_path, QUIET)
    assert "Connection refused), nothing was received; run again to continue, or give data.root" in str(caught.value)


def test_progress_counts_mebibytes(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    heard: list[object] = []
    listener = Listener(start=lambda total, unit: heard.append((total, unit)), advance=heard.append)
    fetch(archive(server.url("set")), tmp_path, listener)
    assert heard == [(4, "MiB"), 0, 1, 1, 1, 1]
    (tmp_path / "set").rename(tmp_path / "set.part")
    with (tmp_path / "set.part").open("r+b") as part:
        part.truncate(3 << 20)
    heard.clear()
    fetch(archive(server.url("set")), tmp_path, listener)
    assert heard == [(4, "MiB"), 3, 1]


FULL = """
import resource, signal, sys
from pathlib import Path
from data.fetching.download import Listener, fetch
from data.fetching.manifest import Archive
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
try:
    fetch(Archive(url=sys.argv[1], sha256=sys.argv[2]), Path(sys.argv[3]), Listener(lambda *_: None, lambda _: None))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_disk_full_is_one_sentence_and_leaves_nothing_that_looks_whole(server, tmp_path: Path) -> None:
    """The limit on a file's size stands for the end of the disk: the write fails in the same place."""
    server.files["set"] = CONTENT
    wanted = archive(server.url("set"))
    argv = [sys.executable, "-c", FULL, wanted.url, wanted.sha256, str(tmp_path)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"DiskFull {tmp_path}/set: disk full while writing, nothing half-written is kept")
    assert left_in(tmp_path) in ([], ["set.part"])
    assert fetch(wanted, tmp_path, QUIET).read_bytes() == CONTENT


def test_two_runs_at_once_download_once(server, tmp_path: Path) -> None:
    server.files["set"] = CONTENT
    wanted = archive(server.url("set"))
    threads = [threading.Thread(target=fetch, args=(wanted, tmp_path, QUIET)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == [None]
    assert (tmp_path / "set").read_bytes() == CONTENT


def test_full_is_said_for_the_device_that_is_always_full() -> None:
    from data.fetching.download import explained_disk_full

    with pytest.raises(DiskFull, match="/dev/full: disk full"), explained_disk_full(Path("/dev/full")):
        Path("/dev/full").write_bytes(b"x")
