"""Files packed behind a network stay with it when it is rewritten, and cannot be used against us."""

from __future__ import annotations

import io
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from pipeline.errors import StageError
from stages.graph.graph import Graph
from stages.graph.judge.tflm import arena_head_bytes
from stages.graph.tflite.associated_files import with_files_of
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.tools.optimisation import optimize
from tests.stages.graph.int8_graphs import residual_network
from tests.stages.graph.tflite.test_float_edges import float_network
from tests.stages.tools.test_optimisation import badly_ordered, two_branches

LABELS = b"yes\nno\nunknown\n"


def packed_behind(network: bytes, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """As TFLite Metadata does it: the archive is appended to the model's file."""
    whole = io.BytesIO(network)
    with zipfile.ZipFile(whole, "a", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return whole.getvalue()


@pytest.mark.parametrize("graph", [badly_ordered(two_branches()), float_network()], ids=["reordered", "stripped"])
def test_labels_are_still_there_in_the_optimised_file_and_the_runtime_still_loads_it(
    graph: Graph, tmp_path: Path
) -> None:
    model, once, twice = (tmp_path / f"{name}.tflite" for name in ("model", "once", "twice"))
    files = {"labels.txt": LABELS, "vocabulary.txt": bytes(50_000)}
    model.write_bytes(packed_behind(write_tflite(graph, "test"), files, zipfile.ZIP_DEFLATED))
    record = optimize(model, once).record
    with zipfile.ZipFile(once) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
        assert archive.infolist()[0].header_offset == once.read_bytes().index(b"PK\x03\x04")  # from the file's start
    assert arena_head_bytes(once.read_bytes(), read_tflite(once)) == record["arena_bytes"]
    optimize(once, twice)
    assert once.read_bytes() == twice.read_bytes()


def test_a_network_without_files_stays_as_it_is() -> None:
    content = write_tflite(residual_network(0), "test")
    assert with_files_of(content, content) is content
    assert with_files_of(b"", content) is content


def test_a_damaged_archive_is_refused_rather_than_lost() -> None:
    whole = packed_behind(write_tflite(residual_network(0), "test"), {"labels.txt": LABELS})
    spoilt = whole.replace(LABELS, LABELS.upper())
    with pytest.raises(StageError, match=r"the files packed behind the network cannot be read \(Bad CRC-32"):
        with_files_of(spoilt, b"")
    with pytest.raises(StageError, match=r"packed behind the network cannot be read .*, needed a whole ZIP archive"):
        with_files_of(whole[-60:], b"")


def test_files_that_unfold_to_much_are_refused_at_once() -> None:
    bomb = packed_behind(b"", {"labels.txt": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    started = time.process_time()
    with pytest.raises(StageError, match="files of 67108864 B are packed behind the network, needed at most 16777216"):
        with_files_of(bomb, b"")
    assert time.process_time() - started < 0.1


def test_a_directory_of_tens_of_thousands_of_files_is_refused_before_it_is_read() -> None:
    many = packed_behind(b"", {f"{number:030}": b"" for number in range(20_000)})
    with pytest.raises(StageError, match="with a directory of 1520000 B .* needed plain ZIP and at most 1048576 B"):
        with_files_of(many, b"")


def test_a_file_that_hides_its_size_is_not_unpacked_beyond_it() -> None:
    size_bytes = 64 << 20
    bomb = packed_behind(b"", {"labels.txt": bytes(size_bytes)}, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    with pytest.raises(StageError, match=r"cannot be read \(Bad CRC-32"):
        with_files_of(bomb.replace(size_bytes.to_bytes(4, "little"), (10).to_bytes(4, "little")), b"")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


def test_an_archive_for_more_than_four_gigabytes_is_refused() -> None:
    whole = packed_behind(b"", {"labels.txt": LABELS})
    locator = b"PK\x06\x07" + bytes(16)
    with pytest.raises(StageError, match="an archive in ZIP64 format is packed behind the network, needed plain ZIP"):
        with_files_of(whole[:-22] + locator + whole[-22:], b"")


def test_other_ways_of_packing_are_refused() -> None:
    with pytest.raises(StageError, match="packed by method 14, needed stored or deflated"):
        with_files_of(packed_behind(b"", {"labels.txt": LABELS}, zipfile.ZIP_LZMA), b"")
