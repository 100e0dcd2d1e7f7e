"""The front end on the device: how many ticks it takes for a clip, and how close its features are to the host's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data import SAMPLE_RATE_HZ
from data.sounds.mfcc import Mfcc, MfccSettings
from hil.link.audio import AudioLink
from pipeline.errors import StageError
from stages.graph.graph import Graph
from stages.measure.accuracy import quantised
from stages.measure.seen import FrontEndSeen
from stages.measure.session import OpenLink

SHARE_WITHIN_ONE = 0.999  # of the features that may differ from the host's by one step at most
_SEED = 4


def trial_clip(samples: int, rate_hz: int) -> np.ndarray:
    """A rising tone in noise that fades: every band and every loudness occurs. int16, the same every time."""
    time_s = np.arange(samples) / rate_hz
    swept = np.sin(2 * np.pi * (50 * time_s + 1500 * time_s**2))
    noise = np.random.default_rng(_SEED).standard_normal(samples)
    return np.round((8000 * swept + 2000 * noise) * 10.0 ** (-3.0 * time_s)).astype("<i2")


def measure_front_end(device: OpenLink, clip: np.ndarray, dataset: Mapping[str, Any], graph: Graph) -> FrontEndSeen:
    """Ticks, and the comparison with the host's features, which must be near."""
    audio = AudioLink(device.link)
    found = np.frombuffer(audio.features(clip.tobytes()), np.int8).astype(np.int16)
    ticks = device.link.layer_profile().front_end_ticks
    if ticks is None:
        raise StageError(f"{device.where}: reports no front end, needed one by its footprint; force the flash step")
    gaps = np.abs(found - host_features(clip, dataset, graph).reshape(-1).astype(np.int16))
    seen = FrontEndSeen(ticks, gaps.size, int(np.sum(gaps == 0)), int(np.sum(gaps <= 1)))
    if seen.within_one < SHARE_WITHIN_ONE * seen.values:
        raise StageError(
            f"{device.where}: {seen.values - seen.within_one} of {seen.values} features are more than one step off the"
            f" host's, needed at most {1 - SHARE_WITHIN_ONE:.1%}; was the front end changed since prepare?"
        )
    return seen


def host_features(clip: np.ndarray, dataset: Mapping[str, Any], graph: Graph) -> np.ndarray:
    """What prepare would make of a clip, quantised like the network's input: (frames, coefficients)."""
    frames = graph.tensors[graph.inputs[0]].shape[1]
    second = np.zeros((1, max(len(clip), SAMPLE_RATE_HZ)), np.int16)  # what prepare's front end takes
    second[0, : len(clip)] = clip
    raw = Mfcc(MfccSettings(**dataset["features"]))(second)[0, :frames]
    mean, std = (np.array(dataset[name], np.float32) for name in ("feature_mean", "feature_std"))
    return quantised(((raw - mean) / std)[np.newaxis], graph).reshape(raw.shape)
