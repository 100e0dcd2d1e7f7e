"""Archives: unpacked whole, under their own folder, or refused before a byte is written."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from data.fetching.unpack import MARKER, unpacked
from pipeline.errors import StageError

DIGEST = "ab" * 32


def tar(path: Path, *members: tuple[str, bytes | None], link: tuple[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            info.size = len(content or b"")
            info.mode = 0o777
            archive.addfile(info, io.BytesIO(content or b""))
        if link is not None:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(info)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpack(path: Path, folder: Path, digest: str = DIGEST) -> Path:
    return unpacked(((path, digest),), folder, lambda count: None)


def test_a_tar_is_unpacked_and_marked(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", ("./word", None), ("./word/one.wav", b"1"), ("./list.txt", b"x" * 3_000_000))
    folder = unpack(path, tmp_path / "set")
    assert files(folder) == {
        "word/one.wav": b"1",
        "list.txt": b"x" * 3_000_000,
        MARKER: f"{DIGEST}\n".encode(),
    }


def test_a_zip_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("train/1.jpg", b"one")
        archive.writestr("train/2.jpg", b"two")
        archive.writestr("empty/", b"")
        plain = zipfile.ZipInfo("plain")
        archive.writestr(plain, b"three")
        plain.external_attr = 0  # as programs write it that know no modes
    folder = unpack(tmp_path / "a.zip", tmp_path / "set")
    assert {name: content for name, content in files(folder).items() if name != MARKER} == {
        "train/1.jpg": b"one",
        "train/2.jpg": b"two",
        "plain": b"three",
    }


def test_several_archives_share_a_folder(tmp_path: Path) -> None:
    one, two = tar(tmp_path / "1.tgz", ("a/x", b"1")), tar(tmp_path / "2.tgz", ("b/y", b"2"))
    folder = unpacked(((one, DIGEST), (two, "cd" * 32)), tmp_path / "set", lambda count: None)
    assert sorted(files(folder)) == [MARKER, "a/x", "b/y"]


def test_a_complete_folder_is_left_alone_and_one_of_another_archive_is_replaced(tmp_path: Path) -> None:
    folder = unpack(tar(tmp_path / "1.tgz", ("x", b"1")), tmp_path / "set")
    unpack(tmp_path / "gone.tgz", folder)
    assert files(folder)["x"] == b"1"
    unpack(tar(tmp_path / "2.tgz", ("y", b"2")), folder, "cd" * 32)
    assert sorted(files(folder)) == [MARKER, "y"]


@pytest.mark.parametrize("name", ["../out.txt", "word/../../out.txt", "/out.txt", "..\\out.txt", "C:/out.txt"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = tar(tmp_path / "a.tgz", ("good.txt", b"1"), (name, b"bad"))
    (tmp_path / "below").mkdir()
    with pytest.raises(StageError, match="would land outside its folder; do not trust this archive"):
        unpack(path, tmp_path / "below" / "set")
    assert [path.name for path in (tmp_path / "below").iterdir() if path.suffix != ".lock"] == []
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../..", "good.txt"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, target: str) -> None:
    path = tar(tmp_path / "a.tgz", ("good.txt", b"1"), link=("link", target))
    with pytest.raises(StageError, match="holds 'link', a link or special file"):
        unpack(path, tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(StageError, match="holds 'link', a link or special file"):
        unpack(tmp_path / "a.zip", tmp_path / "set")


def test_a_file_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="holds 'x' twice"):
        unpack(tar(tmp_path / "a.tgz", ("x", b"1"), ("x", b"2")), tmp_path / "set")
    with pytest.raises(StageError, match="holds 'y' twice"):
        unpack(tar(tmp_path / "b.tgz", ("x", b"1"), ("x/y", b"2")), tmp_path / "set")


def test_an_archive_that_was_cut_off_leaves_nothing(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tgz", ("x", os.urandom(200_000)), ("y", os.urandom(200_000)))
    path.write_bytes(path.read_bytes()[:250_000])
    with pytest.raises(StageError, match="cannot be unpacked .*, needed a whole archive"):
        unpack(path, tmp_path / "set")
    assert not (tmp_path / "set").exists() and not (tmp_path / "set.unpacking").exists()


def test_what_a_killed_run_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "set.unpacking").mkdir()
    (tmp_path / "set.unpacking" / "half.wav").write_bytes(b"1")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "unmarked.wav").write_bytes(b"1")
    folder = unpack(tar(tmp_path / "1.tgz", ("x", b"1")), tmp_path / "set")
    assert sorted(files(folder)) == [MARKER, "x"]
    assert not (tmp_path / "set.unpacking").exists()


def test_unpacked_files_cannot_be_run(tmp_path: Path) -> None:
    folder = unpack(tar(tmp_path / "1.tgz", ("x", b"1")), tmp_path / "set")
    assert not (folder / "x").stat().st_mode & 0o111
