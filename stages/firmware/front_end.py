"""The front end's settings and tables, from the record of the data set and the quantisation of the network's input.

The definition is that of data/sounds/mfcc.py: periodic Hann window, power spectrum, triangular filters of height 1 on
the HTK mel scale (m = 2595 log10(1 + f / 700)), natural logarithm of mel + 1e-6, and for MFCC an orthonormal DCT-II.
Everything linear that follows is folded into the DCT: q = round((c - mean) / (std * scale) + zero point); of log-mel
features one factor for each bin is left of it. Tables are made in double precision and rounded once. Refuses features
that the device cannot make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.errors import StageError
from stages.firmware.config import FrontEndKind, StreamConfig
from stages.graph.graph import Graph

LOG_FLOOR = 1e-6
_FULL_SCALE = 32_768.0
_POWER_GAIN = 4.0  # spectrum.c leaves out two halvings
_MOST_FFT_POINTS = 4096
FeatureKind = Literal["mfcc", "log_mel"]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Detection in hops and sums of uint8 outputs, as audio/stream.c counts."""

    run_hops: int
    smooth_runs: int
    threshold_sum: int
    refractory_hops: int
    is_word: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """What the generated front_end.h and front_end.c say."""

    kind: FrontEndKind
    sample_rate_hz: int
    window_samples: int
    hop_samples: int
    fft_points: int
    frames: int
    coefficients: int  # features of a frame
    first_bin: int  # of the spectrum, the first that a filter looks at
    bins: int
    window: np.ndarray
    roots: np.ndarray  # complex
    reversed_indices: np.ndarray
    filters: tuple[tuple[int, np.ndarray], ...]  # first bin, counted from first_bin, and weights
    dct: np.ndarray  # (coefficients, mel bins); of log-mel features (mel bins, 1), each of its own bin
    offset: np.ndarray
    stream: Stream | None

    @property
    def features(self) -> FeatureKind:
        """What it makes."""
        return "mfcc" if self.dct.shape[1] == len(self.filters) else "log_mel"

    @property
    def clip_samples(self) -> int:
        return (self.frames - 1) * self.hop_samples + self.window_samples

    @property
    def constant_bytes(self) -> int:
        """Flash that the tables take."""
        weights = sum(len(weights) for _, weights in self.filters)
        floats = self.window.size + 2 * self.roots.size + weights + self.dct.size + self.offset.size
        return 4 * floats + 2 * self.reversed_indices.size + 4 * len(self.filters)

    @property
    def fast_bytes(self) -> int:
        """RAM beside the arena: spectrum, power, mel, and in a stream the frames and scores."""
        work = 4 * (self.fft_points + self.bins + len(self.filters))
        if self.stream is None:
            return work
        return work + self.frames * self.coefficients + (self.stream.smooth_runs + 4) * len(self.stream.is_word)

    @property
    def bulk_bytes(self) -> int:
        """RAM of the samples."""
        return 2 * (self.clip_samples + (self.window_samples if self.stream else 0))


def design_front_end(kind: FrontEndKind, stream: StreamConfig, record: Mapping[str, Any], graph: Graph) -> FrontEnd:
    """From dataset.json and the network."""
    try:
        settings = {name: int(value) for name, value in record["features"].items() if value is not None}
        rate_hz = int(record["sample_rate_hz"])
        mean, std = (np.array(record[name], np.float64) for name in ("feature_mean", "feature_std"))
        classes = tuple(str(name) for name in record["classes"])
        window, hop, points = settings["window_samples"], settings["hop_samples"], settings["fft_size"]
        mel_bins, has_dct = settings["mel_bins"], record["features"]["coefficients"] is not None
        low_hz, high_hz = settings["low_hz"], settings["high_hz"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StageError(
            f"firmware: dataset.json has no settings of sounds ({error!r}), needed by front_end: {kind};"
            " use front_end: none for this data set"
        ) from error
    made: FeatureKind = "mfcc" if has_dct else "log_mel"
    if kind not in (made, "kws_stream"):
        raise StageError(f"firmware.front_end: found {kind}, the network takes {made} features; set it to {made}")
    coefficients = settings["coefficients"] if has_dct else mel_bins
    if points & (points - 1) or not 8 <= points <= _MOST_FFT_POINTS or window % 2 or not 0 < hop <= window <= points:
        raise StageError(
            f"firmware: front end with fft_size {points}, window {window} and hop {hop} samples, needed a power of two"
            f" up to {_MOST_FFT_POINTS}, an even window within it, and a hop within the window"
        )
    frames = _frames(graph, coefficients)
    grid = graph.tensors[graph.inputs[0]].quantisation
    assert grid is not None
    matrix = mel_filters(points // 2 + 1, rate_hz, mel_bins, low_hz, high_hz)
    heard = np.flatnonzero(matrix.any(axis=1))
    first_bin = int(heard[0])
    steps = std * np.float64(np.float32(grid.scale[0]))
    return FrontEnd(
        kind=kind,
        sample_rate_hz=rate_hz,
        window_samples=window,
        hop_samples=hop,
        fft_points=points,
        frames=frames,
        coefficients=coefficients,
        first_bin=first_bin,
        bins=int(heard[-1]) + 1 - first_bin,
        window=(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)) / _FULL_SCALE,
        roots=np.exp(-2j * np.pi * np.arange(points * 3 // 4) / points),
        reversed_indices=_bit_reversed(points // 2)[: window // 2],
        filters=tuple(_sparse(matrix[:, mel] / _POWER_GAIN, first_bin) for mel in range(mel_bins)),
        dct=(dct_matrix(coefficients, mel_bins) if has_dct else np.ones((mel_bins, 1))) / steps[:, np.newaxis],
        offset=grid.zero_point[0] - mean / steps,
        stream=stream_of(stream, graph, classes, hop / rate_hz) if kind == "kws_stream" else None,
    )


def mel_filters(bins: int, rate_hz: int, mel_bins: int, low_hz: float, high_hz: float) -> np.ndarray:
    """(spectrum bins, mel bins): triangles of height 1 between neighbours that are evenly spaced in mel."""
    edges_mel = np.linspace(_mel(low_hz), _mel(high_hz), mel_bins + 2)
    edges_hz = 700.0 * (10.0 ** (edges_mel / 2595.0) - 1.0)
    frequencies = np.linspace(0.0, rate_hz // 2, bins)[:, np.newaxis]
    left, centre, right = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising, falling = (frequencies - left) / (centre - left), (right - frequencies) / (right - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def dct_matrix(coefficients: int, mel_bins: int) -> np.ndarray:
    """(coefficients, mel bins): orthonormal DCT-II."""
    angle = np.pi / mel_bins * (np.arange(mel_bins) + 0.5) * np.arange(coefficients)[:, np.newaxis]
    matrix = np.cos(angle) * math.sqrt(2.0 / mel_bins)
    matrix[0] /= math.sqrt(2.0)
    return matrix


def _mel(frequency_hz: float) -> float:
    return 2595.0 * math.log10(1.0 + frequency_hz / 700.0)


def _frames(graph: Graph, coefficients: int) -> int:
    source = graph.tensors[graph.inputs[0]]
    if len(source.shape) != 4 or source.shape[2:] != (coefficients, 1):
        raise StageError(
            f"firmware: the network's input is {source.shape}, needed (1, frames, {coefficients}, 1) for the front end"
        )
    return source.shape[1]


def _bit_reversed(count: int) -> np.ndarray:
    bits = count.bit_length() - 1
    return np.array([int(f"{index:0{bits}b}"[::-1], 2) for index in range(count)], np.uint16)


def _sparse(column: np.ndarray, first_bin: int) -> tuple[int, np.ndarray]:
    used = np.flatnonzero(column)
    if not len(used):  # narrower than the distance of two bins: always the floor
        return 0, column[:0]
    return int(used[0]) - first_bin, column[used[0] : used[-1] + 1]


def stream_of(config: StreamConfig, graph: Graph, classes: Sequence[str], hop_s: float) -> Stream:
    result = graph.tensors[graph.outputs[0]]
    grid = result.quantisation
    assert grid is not None
    if result.elements != len(classes) or grid.scale[0] != 1 / 256 or grid.zero_point[0] != -128:
        raise StageError(
            f"firmware: kws_stream on an output of {result.elements} values with scale {grid.scale[0]:g} and zero point"
            f" {grid.zero_point[0]}, needed the SOFTMAX of {len(classes)} classes"
        )
    return Stream(
        run_hops=config.run_every_hops,
        smooth_runs=config.smooth_runs,
        # 255, not 256: the largest int8 output, and so a threshold of 1 stays within reach.
        threshold_sum=math.ceil(config.threshold * 255 * config.smooth_runs),
        refractory_hops=round(config.refractory_s / hop_s),
        is_word=tuple(name not in config.quiet_classes for name in classes),
    )
