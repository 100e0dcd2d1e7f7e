"""Front ends for tests: records as prepare writes them, networks that take their features, clips of every kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data.sounds.mfcc import Mfcc, MfccSettings
from pipeline.stage import write_json
from stages.firmware.config import StreamConfig
from stages.firmware.front_end import FrontEnd, design_front_end
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Quantisation
from tests.stages.graph.int8_graphs import Int8Builder

RATE_HZ = 16_000
KWS = {
    **{"window_samples": 640, "hop_samples": 320, "fft_size": 1024, "mel_bins": 40},
    **{"low_hz": 20, "high_hz": 4000, "coefficients": 10},
}
CLASSES = ("yes", "no", "silence", "unknown")
GRID = Quantisation((0.0625,), (5,))
STREAM = StreamConfig(run_every_hops=3, smooth_runs=2, threshold=0.4, refractory_s="200ms")


@dataclass(frozen=True)
class Task:
    """A data set's record and a network for it."""

    record: dict[str, Any]
    graph: Graph

    @property
    def clip_samples(self) -> int:
        frames = self.graph.tensors[self.graph.inputs[0]].shape[1]
        settings = self.record["features"]
        return (frames - 1) * settings["hop_samples"] + settings["window_samples"]

    def write(self, folder: Path) -> Path:
        return write_json(folder / "dataset.json", self.record)

    def host_features(self, clips: np.ndarray) -> np.ndarray:
        """int8 features (clips, frames, coefficients) by the host's front end, which takes a second at a time."""
        settings = MfccSettings(**self.record["features"])
        window, hop = settings.window_samples, settings.hop_samples
        frames, in_a_second = (1 + (length - window) // hop for length in (clips.shape[1], RATE_HZ))
        starts = range(0, frames * hop, in_a_second * hop)
        padded = np.pad(clips, ((0, 0), (0, RATE_HZ)))
        seconds = np.concatenate([padded[:, start : start + RATE_HZ] for start in starts])
        raw = Mfcc(settings)(seconds).reshape(len(starts), len(clips), in_a_second, -1)
        raw = np.concatenate(list(raw), axis=1)[:, :frames]
        mean, std = (np.array(self.record[name], np.float32) for name in ("feature_mean", "feature_std"))
        grid = self.graph.tensors[self.graph.inputs[0]].quantisation
        assert grid is not None
        steps = np.round((raw - mean) / std / np.float32(grid.scale[0])) + grid.zero_point[0]
        return np.clip(steps, -128, 127).astype(np.int8)


def make_task(frames: int = 49, **changes: int | None) -> Task:
    """Standardisation as of speech; a random convolution, pooling by stride, classifier, softmax."""
    settings = {**KWS, **changes}
    coefficients = settings["coefficients"] or settings["mel_bins"]
    rng = np.random.default_rng(coefficients)
    mean = [-30.0, *rng.normal(0, 2, coefficients - 1)]
    std = [20.0, *rng.uniform(1.5, 6.0, coefficients - 1)]
    record = {
        **{"source": "test", "classes": list(CLASSES), "sample_rate_hz": RATE_HZ, "features": settings},
        **{"feature_mean": [float(v) for v in mean], "feature_std": [float(v) for v in std]},
    }
    builder = Int8Builder(7)
    x = builder.input(frames, coefficients, 1)
    builder.tensors[x] = replace(builder.tensors[x], quantisation=GRID)
    y = builder.conv(x, 4, (6, 3), ConvOptions(stride=(4, 3), padding="same", activation="relu"))
    y = builder.fully_connected(builder.flatten(y), len(CLASSES), ActivationOptions())
    return Task(record, builder.graph(builder.softmax(y)))


def stream_front_end(task: Task) -> FrontEnd:
    """One that finds words in a stream."""
    return design_front_end("kws_stream", STREAM, task.record, task.graph)


def clips_of_every_kind(samples: int, seed: int = 1, each: int = 8) -> np.ndarray:
    """Noise and tones at many levels, speech-like bursts, silence, the two extremes, a square wave at full scale."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(samples) / RATE_HZ
    clips = []
    for _ in range(each):
        clips.append(rng.standard_normal(samples) * 10.0 ** rng.uniform(0, 4))
        clips.append(np.sin(2 * np.pi * rng.uniform(50, 7900) * time_s) * 10.0 ** rng.uniform(0.5, 4.5))
        pitch = rng.uniform(90, 250)
        voiced = sum(np.sin(2 * np.pi * pitch * n * time_s) / n for n in range(1, 16))
        swell = np.maximum(0, np.sin(2 * np.pi * rng.uniform(1, 5) * time_s + rng.uniform(0, 6))) ** 2
        clips.append(voiced * swell * 10.0 ** rng.uniform(2, 4) + rng.standard_normal(samples))
    clips += [np.zeros(samples), np.full(samples, 32767.0), np.full(samples, -32768.0)]
    clips.append(np.where(np.sin(2 * np.pi * 440 * time_s) > 0, 32767.0, -32768.0))
    return np.clip(np.round(np.stack(clips)), -32768, 32767).astype("<i2")
