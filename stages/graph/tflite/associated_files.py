"""The files that TFLite Metadata packs behind a network, labels.txt for instance: a ZIP archive after the flatbuffer.

Runtimes do not see it, apps read it with any ZIP library. Offsets in an archive count from the start of the whole file,
so it cannot simply be copied behind a flatbuffer of another length: its members are packed anew.
Refuses damaged and encrypted archives and those that unfold to megabytes that no label list has.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from pipeline.errors import StageError

_END = struct.Struct("<4s4H2LH")  # end of central directory (APPNOTE.TXT, 4.3.16); the comment follows
_END_MARK, _ZIP64_MARK = b"PK\x05\x06", b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES = 20
_LONGEST_COMMENT = 0xFFFF
_MOST_DIRECTORY_BYTES = 1 << 20  # some 10,000 files
_MOST_BYTES = 16 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may ask for gigabytes to unpack a little
_DAMAGE = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError, OSError, struct.error)


def with_files_of(source: bytes, network: bytes) -> bytes:
    """The network with the files that are packed behind `source`; without any it stays as it is."""
    end = _end_of_archive(source)
    if end is None:
        return network
    _check_directory(source, end)
    new = io.BytesIO(network)
    new.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as old, zipfile.ZipFile(new, "w") as made:
            _check_members(old.infolist())
            for member in old.infolist():
                made.writestr(member, _content(old, member))
            made.comment = old.comment
    except _DAMAGE as error:
        raise StageError(
            f"the files packed behind the network cannot be read ({error}), needed a whole ZIP archive"
        ) from error
    return new.getvalue()


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    # Not archive.read(): that unpacks everything before it looks at the size that was declared.
    with archive.open(member) as file:
        return file.read(member.file_size)


def _end_of_archive(content: bytes) -> int | None:
    """Where the archive's last record starts, as zipfile looks for it."""
    last = len(content) - _END.size
    if content[last : last + 4] == _END_MARK and content[-2:] == b"\0\0":
        return last
    found = content.rfind(_END_MARK, max(0, last - _LONGEST_COMMENT))
    return found if 0 <= found <= last else None


def _check_directory(content: bytes, end: int) -> None:
    """Before zipfile reads all of the directory, however long it is."""
    directory_bytes = _END.unpack_from(content, end)[5]
    is_zip64 = content[max(0, end - _ZIP64_LOCATOR_BYTES) :].startswith(_ZIP64_MARK)
    if is_zip64 or directory_bytes > _MOST_DIRECTORY_BYTES:
        found = "in ZIP64 format" if is_zip64 else f"with a directory of {directory_bytes} B"
        needed = f"needed plain ZIP and at most {_MOST_DIRECTORY_BYTES} B"
        raise StageError(f"an archive {found} is packed behind the network, {needed}")


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    total = sum(member.file_size for member in members)
    if total > _MOST_BYTES:
        raise StageError(f"files of {total} B are packed behind the network, needed at most {_MOST_BYTES} B")
    for member in members:
        if member.compress_type not in _METHODS:
            raise StageError(
                f"a file behind the network is packed by method {member.compress_type}, needed stored or deflated"
            )
