"""A detector of spoken words without training: pieces of examples as filters, and a linear layer fitted in closed form.

It generalises to nobody else, but it is a real network: it can miss words and mistake them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from data.fetching.manifest import load_manifest
from data.sounds.espeak import Utterance, find_espeak, speak
from data.sounds.mfcc import Mfcc, MfccSettings
from data.sounds.noise import background_noises
from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    Graph,
    NoOptions,
    Op,
    PoolOptions,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.front_ends import KWS, RATE_HZ, Task

WORDS = ("left", "no", "stop", "yes")
CLASSES = (*WORDS, "silence", "unknown")
VOICES = 2
OTHER_PROSODIES = 1
INPUT_SCALE, BANK_SCALE, LOGIT_SCALE = 1 / 32, 1 / 4, 1 / 8
TEMPLATES, PIECE_FRAMES = 160, 12
SHIFTS = 3
RIDGE = 30.0
SHARPNESS = 9.0  # of the softmax: fitted values lie between 0 and 1


@cache
def fitted_task() -> Task:
    clips, labels = _examples()
    raw = Mfcc(MfccSettings(**KWS))(clips)
    mean, std = raw.mean(axis=(0, 1)), raw.std(axis=(0, 1))
    inputs = np.clip(np.round((raw - mean) / std / INPUT_SCALE), -128, 127).astype(np.int8)[..., np.newaxis]
    tensors, ops = _template_bank(inputs[labels != CLASSES.index("silence")])
    bank = Graph(tuple(tensors), tuple(ops), (0,), (ops[-1].outputs[0],))
    found = run_tflm(write_tflite(bank, "bank"), bank, inputs).reshape(len(inputs), -1)
    x = np.hstack([found * BANK_SCALE, np.ones((len(found), 1))])
    wanted = np.eye(len(CLASSES))[labels]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ wanted) * SHARPNESS
    record = {
        **{"source": "test", "classes": list(CLASSES), "sample_rate_hz": RATE_HZ, "features": KWS},
        **{"feature_mean": [float(v) for v in mean], "feature_std": [float(v) for v in std]},
    }
    return Task(record, _with_classifier(tensors, ops, weights[:-1].T, weights[-1]))


def _examples() -> tuple[np.ndarray, np.ndarray]:
    """Every prosody of the words, one of all others; each clip is heard at several places of the window, in noise."""
    manifest, espeak = load_manifest("builtin_keywords"), find_espeak()
    assert manifest.speech is not None
    prosodies, unknown = manifest.speech.prosodies, manifest.unknown_words
    said = [
        (Utterance(word=word, voice=voice, prosody=prosody), word)
        for voice in manifest.speech.voices.of("test")[:VOICES]
        for words, said_as in ((WORDS, prosodies), (unknown, prosodies[:OTHER_PROSODIES]))
        for prosody in said_as
        for word in words
    ]
    with ThreadPoolExecutor(2) as pool:
        spoken = list(pool.map(lambda each: speak(each[0], espeak), said))
    rng = np.random.default_rng(2)
    noise = np.concatenate(background_noises([3]))
    clips, labels = [], []
    for (_, word), clip in zip(said, spoken, strict=True):
        label = CLASSES.index(word) if word in CLASSES else CLASSES.index("unknown")
        for shift in np.linspace(-3200, 3200, SHIFTS).astype(int):
            clips.append(np.roll(clip, shift) * rng.uniform(0.3, 1.0))
            labels.append(label)
    for _ in range(len(clips) // 4):
        clips.append(np.zeros(RATE_HZ))
        labels.append(CLASSES.index("silence"))
    starts = rng.integers(0, len(noise) - RATE_HZ, len(clips))
    levels = 10.0 ** rng.uniform(0.5, 2.2, len(clips))
    noisy = [
        clip + noise[start : start + RATE_HZ] * level for clip, start, level in zip(clips, starts, levels, strict=True)
    ]
    return np.clip(np.round(np.stack(noisy)), -32768, 32767).astype(np.int16), np.array(labels)


def _template_bank(inputs: np.ndarray) -> tuple[list[Tensor], list[Op]]:
    """CONV_2D with pieces of the examples as filters, and the best match of each at any time."""
    rng = np.random.default_rng(5)
    pieces = []
    while len(pieces) < TEMPLATES:
        clip, start = int(rng.integers(len(inputs))), int(rng.integers(8, 30))
        piece = inputs[clip, start : start + PIECE_FRAMES, :, 0].astype(np.float64)
        piece -= piece.mean(axis=0)
        if np.linalg.norm(piece) > 0:
            pieces.append(piece / np.abs(piece).max() * 127)
    weights = np.round(np.stack(pieces)).astype(np.int8)[..., np.newaxis]
    norms = np.linalg.norm(weights.reshape(TEMPLATES, -1).astype(np.float64), axis=1)
    scales = tuple(float(np.float32(1 / norm)) for norm in norms)
    steps = 1 + (49 - PIECE_FRAMES) // 2
    bank_grid = Quantisation((BANK_SCALE,), (0,))
    zeros = (0,) * TEMPLATES
    bias_grid = Quantisation(tuple(float(np.float32(s * INPUT_SCALE)) for s in scales), zeros, 0)
    tensors = [
        Tensor("input", (1, 49, 10, 1), "int8", Quantisation((INPUT_SCALE,), (0,))),
        Tensor("templates", weights.shape, "int8", Quantisation(scales, zeros, 0), weights),
        Tensor("no_bias", (TEMPLATES,), "int32", bias_grid, np.zeros(TEMPLATES, np.int32)),
        Tensor("matches", (1, steps, 1, TEMPLATES), "int8", bank_grid),
        Tensor("best", (1, 1, 1, TEMPLATES), "int8", bank_grid),
    ]
    ops = [
        Op("CONV_2D", "matches", (0, 1, 2), (3,), ConvOptions(stride=(2, 1), padding="valid")),
        Op("MAX_POOL_2D", "best", (3,), (4,), PoolOptions((steps, 1), (1, 1), "valid", "none")),
    ]
    return tensors, ops


def _with_classifier(tensors: list[Tensor], ops: list[Op], weights: np.ndarray, bias: np.ndarray) -> Graph:
    """And FULLY_CONNECTED, SOFTMAX behind."""
    scales = np.abs(weights).max(axis=1) / 127
    classes, depth = weights.shape
    grid = Quantisation(tuple(float(np.float32(s)) for s in scales), (0,) * classes, 0)
    sums = Quantisation(tuple(float(np.float32(s * BANK_SCALE)) for s in scales), (0,) * classes, 0)
    first = len(tensors)
    more = (
        Tensor("shape", (2,), "int32", data=np.array([1, depth], np.int32)),
        Tensor("flat", (1, depth), "int8", Quantisation((BANK_SCALE,), (0,))),
        Tensor("weights", weights.shape, "int8", grid, np.round(weights / scales[:, np.newaxis]).astype(np.int8)),
        Tensor("bias", (classes,), "int32", sums, np.round(bias / (scales * BANK_SCALE)).astype(np.int32)),
        Tensor("logits", (1, classes), "int8", Quantisation((LOGIT_SCALE,), (0,))),
        Tensor("scores", (1, classes), "int8", Quantisation((1 / 256,), (-128,))),
    )
    last = (
        Op("RESHAPE", "flat", (first - 1, first), (first + 1,), NoOptions()),
        Op("FULLY_CONNECTED", "logits", (first + 1, first + 2, first + 3), (first + 4,), ActivationOptions()),
        Op("SOFTMAX", "scores", (first + 4,), (first + 5,), SoftmaxOptions()),
    )
    return Graph((*tensors, *more), (*ops, *last), (0,), (first + 5,))
