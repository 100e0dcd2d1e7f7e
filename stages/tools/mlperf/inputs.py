"""The inputs of a task from a folder in the runner's layout, or a test split written as such a folder.

`y_labels.csv` has a line for each file: name, number of classes, class; of the anomaly detector also the bytes to send
and by how many to go on: a file is many windows. Streams are listed in `sww_*.json`: wav file, length, where the words
are. Files lie in the folder itself or in one named like the model (`kws01/`).
"""

from __future__ import annotations

import csv
import json
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError
from stages.tools.mlperf.tasks import Task

LABELS = "y_labels.csv"
_RATE_HZ = 16_000


@dataclass(frozen=True)
class Example:
    """One file: its class, and what is sent for it."""

    file: str
    label: int
    windows: tuple[bytes, ...]  # one, but for the anomaly detector


@dataclass(frozen=True, eq=False)
class Stream:
    """One recording, and from when to when its wake words are said."""

    file: str
    samples: np.ndarray  # int16 at 16 kHz
    words_s: tuple[tuple[float, float], ...]


def read_examples(folder: Path, task: Task, sent_bytes: int, most: int = 0) -> tuple[Example, ...]:
    """Those of the folder, in its order; `most` > 0 takes so many, evenly spread."""
    root = _root(folder, task, LABELS)
    with (root / LABELS).open(newline="") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if most:
        rows = [
            rows[index] for index in np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))
        ]
    found = tuple(_example(root, row, sent_bytes) for row in rows)
    if not found:
        raise ConfigError(f"{root / LABELS}: has no line, needed file, number of classes and class in each")
    return found


def _example(root: Path, row: Sequence[str], sent_bytes: int) -> Example:
    try:
        name, label = row[0].strip(), int(row[2])
        size, stride = (int(row[3]), int(row[4])) if len(row) > 4 and row[3].strip() else (0, 0)
    except (IndexError, ValueError) as error:
        raise ConfigError(f"{root / LABELS}: found {','.join(row)!r}, needed file, number of classes, class") from error
    path = root / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
        raise ConfigError(f"{root / LABELS}: {name}: no such file in {root}; was the folder copied whole?")
    content = path.read_bytes()
    if size:
        starts = range(0, len(content) - size + 1, max(1, stride))
        windows = tuple(content[start : start + size] for start in starts)
    else:
        windows = (content,)
    if not windows or {len(window) for window in windows} != {sent_bytes}:
        found = len(windows[0]) if windows else len(content)
        raise ConfigError(
            f"{path}: inputs of {found} B, the network takes {sent_bytes} B; is it another task's folder?"
        )
    return Example(name, label, windows)


def write_examples(folder: Path, task: Task, sent: np.ndarray, labels: np.ndarray) -> Path:
    """A folder in the same layout, for a task whose official one is not at hand."""
    root = folder / task.model
    root.mkdir(parents=True, exist_ok=True)
    classes = int(labels.max()) + 1 if len(labels) else 0
    lines = []
    for index, (one, label) in enumerate(zip(sent, labels, strict=True)):
        name = f"test_{index:05d}.bin"
        (root / name).write_bytes(one.tobytes())
        more = f",{one.nbytes},{one.nbytes}" if task.metric == "auc" else ""
        lines.append(f"{name},{classes},{int(label)}{more}\n")
    (root / LABELS).write_text("".join(lines))
    return folder


def read_streams(folder: Path, task: Task) -> tuple[Stream, ...]:
    """The recordings of the first sww_*.json."""
    root = _root(folder, task, "sww_*.json")
    listing = sorted(root.glob("sww_*.json"))[0]
    try:
        rows = json.loads(listing.read_text())
        return tuple(
            Stream(row["wav_file"], _samples(root / row["wav_file"]), tuple(map(tuple, row["detection_windows"])))
            for row in rows
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{listing}: not the runner's list of recordings ({error!r})") from error


def write_stream(folder: Path, task: Task, stream: Stream) -> Path:
    """One recording as the runner wants it."""
    root = folder / task.model
    root.mkdir(parents=True, exist_ok=True)
    with wave.open(str(root / stream.file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(_RATE_HZ)
        out.writeframes(stream.samples.astype("<i2").tobytes())
    row = {"wav_file": stream.file, "sample_rate": _RATE_HZ, "length_sec": len(stream.samples) / _RATE_HZ}
    (root / "sww_long_test.json").write_text(json.dumps([{**row, "detection_windows": stream.words_s}]))
    return folder


def _samples(path: Path) -> np.ndarray:
    try:
        with wave.open(str(path), "rb") as sound:
            if (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) != (1, 2, _RATE_HZ):
                raise ConfigError(f"{path}: needed one channel of 16 bits at 16 kHz")
            return np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{path}: not a readable wav file ({error})") from error


def _root(folder: Path, task: Task, pattern: str) -> Path:
    for root in (folder / task.model, folder):
        if any(root.glob(pattern)):
            return root
    raise ConfigError(f"--data {folder}: holds no {pattern}, nor does {task.model}/ in it; see mlcommons/tiny")
