"""inspect: figures that add up, names that cannot break the picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import StageError
from stages.graph.memory.resources import resources
from stages.graph.tflite.writer import write_tflite
from stages.tools.inspection import inspect, inspected
from stages.tools.timeline import _ceiling, timeline
from tests.stages.graph.int8_graphs import Int8Builder, residual_network
from tests.stages.graph.tflite.test_float_edges import float_network
from tests.stages.tools.test_optimisation import badly_ordered, two_branches

SVG = "{http://www.w3.org/2000/svg}"


def written(tmp_path: Path, graph: object) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(graph, "test"))  # type: ignore[arg-type]
    return path


def test_the_record_has_the_agreed_keys_and_adds_up(tmp_path: Path) -> None:
    graph = badly_ordered(two_branches())
    record = inspect(written(tmp_path, graph), None).record
    keys = [
        *("size_bytes", "macs", "peak_bytes_stored", "peak_bytes", "peak_bytes_imprecise", "arena_bytes"),
        *("lower_bound_bytes", "order_proven_optimal", "layout_proven_optimal", "ops"),
    ]
    assert list(record)[: len(keys)] == keys
    json.dumps(record, allow_nan=False)
    whole = resources(graph)
    assert (record["size_bytes"], record["macs"]) == (whole.size_bytes, whole.macs)
    assert (record["peak_bytes"], record["peak_bytes_imprecise"]) == (whole.peak_bytes, whole.peak_bytes_imprecise)
    assert record["macs"] == sum(op["macs"] for op in record["ops"])
    assert record["size_bytes"] == sum(op["size_bytes"] for op in record["ops"])
    assert record["peak_bytes_stored"] == max(op["live_bytes"] for op in record["ops"]) == 64 * (4 + 32 + 48)
    assert record["peak_bytes"] == max(op["best_live_bytes"] for op in record["ops"]) == 64 * 52 + 8
    assert record["order_proven_optimal"] and record["layout_proven_optimal"]
    assert record["arena_bytes"] == record["lower_bound_bytes"] >= record["peak_bytes"]
    first = record["ops"][0]
    assert (first["index"], first["op"], first["macs"]) == (0, "CONV_2D", 64 * 4 * 32)
    assert first["size_bytes"] == 4 * 32 + 4 * 32


def test_the_text_says_the_same_in_words(tmp_path: Path) -> None:
    assert inspect(written(tmp_path, badly_ordered(two_branches())), None).text.splitlines() == [
        "model.tflite: 7 ops, int8 1x8x8x4 -> 1x1x1x8",
        "size                1,344 B  weights and biases",
        "MACs                 26,248",
        "peak, stored order  5,376 B",
        "peak, best order    3,336 B  proven minimal",
        "peak, imprecise     3,328 B  most that one op touches, in place counted once",
        "peak, overlap       3,128 B  outputs over inputs, row-wise fusion",
        "arena, best order   3,344 B  proven minimal",
        "",
        "#  op           name          output      MACs  size B  live B  best #  live B",
        "0  CONV_2D      activation3   1x8x8x32   8,192     256   2,304       0   2,304",
        "1  CONV_2D      activation7   1x8x8x48  12,288     384   5,376       3   3,336",
        "2  MAX_POOL_2D  activation4   1x1x1x32   2,048       0   5,152       1   2,336",
        "3  MAX_POOL_2D  activation8   1x1x1x48   3,072       0   3,152       4   3,128",
        "4  CONV_2D      activation11  1x1x1x8      256     288      88       2     296",
        "5  CONV_2D      activation14  1x1x1x8      384     416      64       5      64",
        "6  ADD          activation15  1x1x1x8        8       0      16       6      16",
    ]


def test_float_edges_are_told_and_not_counted(tmp_path: Path) -> None:
    answer = inspect(written(tmp_path, float_network()), None)
    assert [op["op"] for op in answer.record["ops"]] == ["CONV_2D", "CONV_2D", "ADD"]
    assert answer.record["float_inputs"][0]["name"] == "input0"
    assert "float input input0: stripped, int8 with scale" in answer.text


def test_a_float_network_is_refused(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.unary("RELU", builder.float_input(2, 2, 2), 1.0))
    floats = tuple(replace(tensor, dtype="float32", quantisation=None) for tensor in graph.tensors)
    with pytest.raises(StageError, match=r"model\.tflite: tensor input0 is float32, needed a full int8 network"):
        inspect(written(tmp_path, replace(graph, tensors=floats)), None)


def test_the_picture_has_a_block_for_each_activation_at_its_place(tmp_path: Path) -> None:
    graph = residual_network(0)
    picture = tmp_path / "memory.svg"
    inspect(written(tmp_path, graph), picture)
    found = inspected(graph)
    root = ElementTree.fromstring(picture.read_text())
    titles = [rect.find(f"{SVG}title") for rect in root.iter(f"{SVG}rect")]
    words = [title.text or "" for title in titles if title is not None]
    activations = [index for index, offset in enumerate(found.layout.offsets) if offset >= 0]
    assert len(words) == len(activations) == 9
    for index in activations:
        tensor = graph.tensors[index]
        where = f"{tensor.nbytes:,} B at offset {found.layout.offsets[index]:,}"
        assert sum(tensor.name in text and where in text for text in words) == 1
    assert f"arena {found.layout.arena_bytes:,} B" in picture.read_text()
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


def test_blocks_do_not_overlap_in_the_picture() -> None:
    found = inspected(badly_ordered(two_branches()))
    root = ElementTree.fromstring(timeline(found.best_graph, found.layout, "test"))
    blocks = [
        tuple(float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    ]
    assert len(blocks) == 8
    for number, (x, y, width, height) in enumerate(blocks):
        for other_x, other_y, other_width, other_height in blocks[number + 1 :]:
            beside = x + width <= other_x + 0.11 or other_x + other_width <= x + 0.11
            above = y + height <= other_y + 1.11 or other_y + other_height <= y + 1.11
            assert beside or above


def test_names_are_escaped_in_the_picture() -> None:
    graph = residual_network(0)
    tensors = tuple(replace(tensor, name=f'<a href="x">&{index}') for index, tensor in enumerate(graph.tensors))
    found = inspected(replace(graph, tensors=tensors))
    root = ElementTree.fromstring(timeline(found.best_graph, found.layout, title="<script>alert(1)</script>"))
    assert not list(root.iter(f"{SVG}a")) and not list(root.iter(f"{SVG}script"))
    assert any('<a href="x">&0' in (title.text or "") for title in root.iter(f"{SVG}title"))


@pytest.mark.parametrize("name", [b"mod\xffel.tflite", b"mod\x01el.tflite"], ids=["undecodable", "control"])
def test_names_of_files_cannot_break_the_picture_or_the_text(name: bytes, tmp_path: Path) -> None:
    model, picture = tmp_path / os.fsdecode(name), tmp_path / "memory.svg"
    model.write_bytes(write_tflite(residual_network(0), "test"))
    answer = inspect(model, picture)
    root = ElementTree.fromstring(picture.read_text())
    assert [text.text for text in root.iter(f"{SVG}text")][0] == "mod?el.tflite"
    assert answer.text.startswith("mod?el.tflite: 8 ops")


def test_a_folder_in_place_of_the_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is a folder, needed a file name"):
        inspect(written(tmp_path, residual_network(0)), tmp_path)


@pytest.mark.parametrize("name, shown", [("Stoß", "Sto?"), ("x" * 50, "..." + "x" * 37)], ids=["letter", "long"])
def test_a_terminal_that_knows_only_ascii_is_served_too(name: str, shown: str, tmp_path: Path) -> None:
    graph = residual_network(0)
    renamed = replace(graph, tensors=tuple(replace(tensor, name=name) for tensor in graph.tensors))
    argv = [sys.executable, "-m", "pipeline.cli", "inspect", str(written(tmp_path, renamed))]
    root, ascii_only = Path(__file__).parents[3], {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=root, env=ascii_only, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split()[:3] == ["7", "SOFTMAX", shown]


def test_the_same_graph_gives_the_same_picture() -> None:
    """Whoever changes the picture writes memory.svg anew, and looks at it in a browser."""
    found = inspected(residual_network(0))
    drawn = timeline(found.best_graph, found.layout, "residual network")
    assert drawn == Path(__file__).with_name("memory.svg").read_text()


@pytest.mark.parametrize(
    ("arena_bytes", "top"), [(0, 1), (1, 1), (8, 8), (9, 10), (16, 16), (17, 20), (41, 50), (480, 500), (801, 1000)]
)
def test_the_scale_ends_at_a_round_figure(arena_bytes: int, top: int) -> None:
    assert _ceiling(arena_bytes) == top


def test_hundreds_of_ops_are_drawn_too() -> None:
    builder = Int8Builder(0)
    x = builder.input(2, 2, 2)
    for _ in range(400):
        x = builder.unary("RELU", x)
    found = inspected(builder.graph(x))
    root = ElementTree.fromstring(timeline(found.best_graph, found.layout, "deep"))
    assert float(root.get("width", "0")) == 84 + 400 * 3 + 132
    names = [text for text in root.iter(f"{SVG}text") if "rotate" in text.get("transform", "")]
    assert [(text.text, text.find(f"{SVG}title").text) for text in names] == [  # type: ignore[union-attr]
        (str(n), f"op {n}: RELU {found.graph.ops[n].name}\n16 B alive") for n in range(0, 400, 10)
    ]
