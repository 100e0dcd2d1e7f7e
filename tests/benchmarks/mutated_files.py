"""Damaged and hostile .tflite files: each must be read, or refused in one sentence, within a second and a gigabyte.

    python -m tests.benchmarks.mutated_files --count 20000 [--models FOLDER_OR_FILE ...]

The files are mutations of several sound ones, by a fixed seed: flipped bits, cuts, insertions, deletions, moved blocks,
words of the structure (lengths, offsets, indices) replaced by extreme ones, offsets that lead backwards, scales and
shapes that make no sense, lists grown to millions. They are read in a process of its own, whose memory is limited and
whose death is noticed. Some of those that can be read go on through `inspect` (order, layout, picture), rewriting and
the firmware compiler.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError

SEED = 20_261_116
LIMIT_S = 1.0
LIMIT_BYTES = 1 << 30
_ADDRESS_SPACE_BYTES = (
    4 << 30
)  # code of the libraries included; what is really used is measured and held to LIMIT_BYTES
_WORKER_LIMIT_S = 3600
_GROWN = 10_000_000  # entries
_RARE = 40  # one file in so many has a list that is grown
_EVERY_INSPECTED = 3  # of the files that can be read
# Operators of other people's files, each in a network of tests/stages/firmware/coverage/networks.py.
_OF_OTHERS = (
    *("static shape", "Conv1D", "stream with first values", "two streams", "LSTM", "SVDF", "TRANSPOSE_CONV", "UNPACK"),
    *("BATCH_MATMUL", "GATHER", "RESIZE_BILINEAR", "several inputs and outputs", "uint8 in and out", "STRIDED_SLICE"),
    *("batch of pictures", "MIRROR_PAD reflect", "ARG_MAX", "PACK", "DIV", "LEAKY_RELU", "CONV_2D in groups"),
    *("FLOAT_NEG", "FLOAT_EXP"),
    *("int16 audio", "int16 stream", "int16 inside of int8", "int16 SOFTMAX", "int16 movement", "int16 CONV_2D"),
)
_EXTREME_WORDS = (0, 1, 2, 4, 0x7F, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
_EXTREME_FLOATS = (0.0, -1.0, 1e-45, 1e-38, 1e-20, 1e20, 3e38, float("inf"), float("nan"))


@dataclass(frozen=True)
class Summary:
    """What happened to all files."""

    files: int
    read: int
    refused: int
    inspected: int
    largest_s: float  # processor time of one file
    largest_rss_bytes: int
    slowest: int  # its number
    sentences: dict[str, int]  # how often each beginning of a refusal occurred


def base_models(paths: Sequence[Path] = ()) -> list[bytes]:
    """Sound files to start from."""
    from stages.graph.tflite.writer import write_tflite
    from tests.stages.firmware.coverage.networks import coverage_network
    from tests.stages.graph.int8_graphs import residual_network
    from tests.stages.graph.tflite.test_float_edges import float_network
    from tests.stages.graph.tflite.test_planned_file import rich_file
    from tests.stages.tools.test_optimisation import squeeze_and_excite, two_branches

    made = [write_tflite(graph, "test") for graph in (squeeze_and_excite(0), float_network(), two_branches())]
    planned = residual_network(0)
    made += [write_tflite(planned, "test", [16 * n for n in range(len(planned.tensors))]), rich_file()]
    made += [write_tflite(coverage_network(name), "test") for name in _OF_OTHERS]
    files = [file for path in paths for file in (sorted(path.glob("*.tflite")) if path.is_dir() else [path])]
    return made + [file.read_bytes() for file in files]


def mutated(number: int, models: Sequence[bytes]) -> bytes:
    """File `number`: the same for the same models."""
    rng = np.random.default_rng([SEED, number])
    if number % _RARE == 0:
        return _with_a_long_list(rng, models[number // _RARE % len(models)])
    if rng.integers(2):
        return _with_other_values(rng, models[number % len(models)])
    content = bytearray(models[number % len(models)])
    for _ in range(int(rng.choice([1, 1, 1, 2, 4, 8]))):
        if len(content) > 16:
            _MUTATIONS[int(rng.integers(len(_MUTATIONS)))](rng, content, models)
    return bytes(content)


def _with_other_values(rng: np.random.Generator, content: bytes) -> bytes:
    """A sound flatbuffer with one to four fields that make no sense: these get further than damaged bytes."""
    from stages.graph.tflite import planned_file

    tree = planned_file.unpack(content)
    for _ in range(int(rng.integers(1, 5))):
        fields = list(_fields(tree))
        owner, name = fields[int(rng.integers(len(fields)))]
        setattr(owner, name, _other_value(rng, getattr(owner, name)))
    try:
        return planned_file.pack(tree)
    except (TypeError, ValueError, AttributeError, struct.error, OverflowError):  # not to be expressed in the schema
        return content


def _with_a_long_list(rng: np.random.Generator, content: bytes) -> bytes:
    """A sound flatbuffer but for one list or name of millions of entries."""
    from stages.graph.tflite import planned_file

    tree = planned_file.unpack(content)
    lists = [(owner, name) for owner, name in _fields(tree) if isinstance(getattr(owner, name), np.ndarray | bytes)]
    owner, name = lists[int(rng.integers(len(lists)))]
    value = getattr(owner, name)
    setattr(owner, name, np.resize(value, _GROWN) if isinstance(value, np.ndarray) else value[:1] * _GROWN)
    return planned_file.pack(tree)


def _fields(table: Any) -> Iterator[tuple[Any, str]]:
    """Every field of a tree of objects that holds something; buffers least, else they would drown the rest."""
    for name, value in vars(table).items():
        if value is None:
            continue
        yield table, name
        for entry in value if isinstance(value, list) else [value]:
            is_constant = isinstance(entry, schema.BufferT)
            if hasattr(entry, "__dict__") and not is_constant:
                yield from _fields(entry)


def _other_value(rng: np.random.Generator, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        changed = (
            np.resize(value, max(0, len(value) + int(rng.integers(-1, 2)))) if rng.integers(3) == 0 else value.copy()
        )
        if len(changed):
            if changed.dtype.kind == "f":
                choices = np.array(_EXTREME_FLOATS, changed.dtype)
            else:
                choices = np.array([*range(-2, 10), 127, -128, 255, 65536, 2**31 - 1, -(2**31)]).astype(changed.dtype)
            changed[int(rng.integers(len(changed)))] = rng.choice(choices)
        return changed
    if isinstance(value, list) and value:
        entries = list(value)
        one, two = (int(rng.integers(len(entries))) for _ in range(2))
        action = int(rng.integers(3))
        if action == 0:
            entries[one], entries[two] = entries[two], entries[one]
        elif action == 1:
            del entries[one]
        else:
            entries += [entries[one]] * int(rng.choice([1, 3, 50]))
        return entries
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(rng.choice([value + 1, max(0, value - 1), 0, 1, 2, 3, 5, 9, 17, 100, 2**15]))
    if isinstance(value, float):
        return float(rng.choice(_EXTREME_FLOATS))
    if isinstance(value, bytes):
        return rng.integers(0, 256, int(rng.integers(0, 40)), dtype=np.uint8).tobytes()
    return value


def _flip(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    for _ in range(int(rng.integers(1, 9))):
        content[_structural(rng, content)] ^= 1 << int(rng.integers(8))


def _random_byte(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    content[int(rng.integers(len(content)))] = int(rng.integers(256))


def _cut(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    del content[int(rng.integers(len(content))) :]


def _insert(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    at = int(rng.integers(len(content)))
    content[at:at] = rng.integers(0, 256, int(rng.integers(1, 64)), dtype=np.uint8).tobytes()


def _delete(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    at = int(rng.integers(len(content)))
    del content[at : at + int(rng.integers(1, 64))]


def _extreme_word(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    """Lengths, offsets and indices."""
    _put_word(content, _structural(rng, content), int(rng.choice(_EXTREME_WORDS)))


def _near_word(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    """A little more or less than it was, or about the size of the file."""
    at = _structural(rng, content)
    old = int.from_bytes(content[at : at + 4], "little")
    _put_word(content, at, int(rng.choice([old - 1, old + 1, old * 2, old + 4, len(content) - at, len(content)])))


def _backwards(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    """An offset that leads back to itself, or somewhere before: loops and shared tables."""
    at = _structural(rng, content)
    _put_word(content, at, (_structural(rng, content) - at) % 2**32)


def _move(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    """A block of this or another model over another place."""
    source = models[int(rng.integers(len(models)))]
    size = int(rng.integers(4, 256))
    start, at = int(rng.integers(len(source))), int(rng.integers(len(content)))
    block = source[start : start + size]
    content[at : at + len(block)] = block


def _float(rng: np.random.Generator, content: bytearray, models: Sequence[bytes]) -> None:
    at = _structural(rng, content)
    content[at : at + 4] = np.array(rng.choice(_EXTREME_FLOATS), "<f4").tobytes()


_MUTATIONS: tuple[Callable[[np.random.Generator, bytearray, Sequence[bytes]], None], ...] = (
    *(_flip, _random_byte, _cut, _insert, _delete),
    *(_extreme_word, _extreme_word, _near_word, _near_word, _backwards, _move, _float),
)


def _structural(rng: np.random.Generator, content: bytearray) -> int:
    """A place that rather holds structure than weights: a word whose upper bytes are all zeros or all ones."""
    at = 0
    for _ in range(12):
        at = int(rng.integers(len(content) // 4)) * 4
        if content[at + 2 : at + 4] in (b"\0\0", b"\xff\xff"):
            break
    return min(at, len(content) - 1)


def _put_word(content: bytearray, at: int, value: int) -> None:
    content[at : at + 4] = (value % 2**32).to_bytes(4, "little")


def attempt(content: bytes, *, goes_on: bool) -> tuple[str, bool]:
    """'read' or the sentence of the refusal, and whether it was inspected; anything else is an exception."""
    from stages.firmware.model_source import compile_model
    from stages.graph.simplify.simplification import simplify
    from stages.graph.tflite import planned_file
    from stages.graph.tflite.reader import read_offline_offsets, read_tflite
    from stages.tools.inspection import inspected
    from stages.tools.timeline import timeline

    try:
        graph = read_tflite(content)
        read_offline_offsets(content)
    except StageError as error:
        return str(error), False
    if not goes_on:
        return "read", False
    try:
        found = inspected(graph)
        timeline(found.best_graph, found.layout, "mutated")
        planned_file.pack(planned_file.unpack(content))
        compile_model(simplify(found.graph))
    except StageError as error:
        assert "\n" not in str(error), str(error)
    return "read", True


def _most_memory_bytes() -> int:
    """Of this program: ru_maxrss would also count what the process that started it held."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def work(first: int, count: int, models: Sequence[bytes]) -> None:
    """Try files one after the other, a JSON line each."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
    read = 0
    for number in range(first, first + count):
        content = mutated(number, models)
        started = time.process_time()
        outcome, was_inspected = attempt(content, goes_on=read % _EVERY_INSPECTED == 0)
        spent_s = time.process_time() - started
        assert "\n" not in outcome, outcome
        read += outcome == "read"
        rss_bytes = _most_memory_bytes()
        line = {"n": number, "outcome": outcome, "inspected": was_inspected, "s": spent_s, "rss": rss_bytes}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def summarise(count: int, paths: Sequence[Path] = (), first: int = 0) -> Summary:
    """Run the worker and collect; AssertionError names the file that ended it."""
    argv = [sys.executable, "-m", "tests.benchmarks.mutated_files", "--worker", str(first), "--count", str(count)]
    for path in paths:
        argv += ["--models", str(path)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_WORKER_LIMIT_S, cwd=root, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ended = f"file {first + len(rows)} ended the process ({done.returncode}):\n{done.stderr[-3000:]}"
    assert done.returncode == 0 and len(rows) == count, ended
    slowest = max(rows, key=lambda row: row["s"])
    refusals = [row["outcome"] for row in rows if row["outcome"] != "read"]
    return Summary(
        files=len(rows),
        read=len(rows) - len(refusals),
        refused=len(refusals),
        inspected=sum(row["inspected"] for row in rows),
        largest_s=slowest["s"],
        largest_rss_bytes=max(row["rss"] for row in rows),
        slowest=slowest["n"],
        sentences=dict(Counter(_kind(sentence) for sentence in refusals)),
    )


def _kind(sentence: str) -> str:
    """The sentence without the numbers and names that differ from file to file."""
    without = re.sub(r"\(.*?\)|[A-Z_0-9]{3,} \S+:|tensor \S+:|[-\d.]+", "#", sentence)
    return without.removeprefix("model: ")[:60]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--models", type=Path, action="append", default=[])
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.count, base_models(options.models))
        return
    found = summarise(options.count, options.models)
    lines = [
        f"{found.files} files: {found.read} read, {found.refused} refused; {found.inspected} inspected and compiled",
        f"longest {found.largest_s:.3f} s (file {found.slowest}), most memory {found.largest_rss_bytes / 1e6:.0f} MB",
        *(f"  {times:6}  {words}" for words, times in sorted(found.sentences.items(), key=lambda item: -item[1])[:15]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    if found.largest_s > LIMIT_S or found.largest_rss_bytes > LIMIT_BYTES:
        sys.exit(1)


if __name__ == "__main__":
    main()
