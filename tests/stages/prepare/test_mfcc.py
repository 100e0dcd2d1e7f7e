"""MFCC against a slow oracle (explicit DFT, mel filters and DCT) and against torchaudio's own transform."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from data.compat import import_torchaudio
from data.sounds.mfcc import Mfcc, MfccSettings
from stages.prepare.config import PrepareConfig

SETTINGS = PrepareConfig().settings()


def waveforms(count: int) -> np.ndarray:
    rng = np.random.default_rng(11)
    time_s = np.arange(16_000) / 16_000
    tones = [9000 * np.sin(2 * np.pi * hz * time_s) for hz in rng.uniform(100, 5000, count)]
    return (np.stack(tones) + rng.standard_normal((count, 16_000)) * 200).astype(np.int16)


def mel(hz: float) -> float:
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def slow_mfcc(samples: np.ndarray, settings: MfccSettings, frame: int) -> list[float]:
    """One frame, every sum written out, in double precision."""
    start = frame * settings.hop_samples
    size = settings.window_samples
    windowed = [
        samples[start + n] / 32768.0 * (0.5 - 0.5 * math.cos(2 * math.pi * n / size)) for n in range(size)
    ]  # periodic Hann
    bins = settings.fft_size // 2 + 1
    angles = -2j * np.pi * np.outer(np.arange(bins), np.arange(size)) / settings.fft_size
    power = np.abs(np.exp(angles) @ np.array(windowed)) ** 2
    low, high = mel(settings.low_hz), mel(settings.high_hz)
    corners_hz = [
        700.0 * (10 ** ((low + (high - low) * i / (settings.mel_bins + 1)) / 2595.0) - 1.0)
        for i in range(settings.mel_bins + 2)
    ]
    logs = []
    for left, centre, right in zip(corners_hz, corners_hz[1:], corners_hz[2:], strict=False):
        total = 0.0
        for k in range(bins):
            hz = k * 16_000 / settings.fft_size
            total += max(0.0, min((hz - left) / (centre - left), (right - hz) / (right - centre))) * power[k]
        logs.append(math.log(total + 1e-6))
    if settings.coefficients is None:
        return logs
    count = len(logs)
    return [
        math.sqrt((1.0 if c == 0 else 2.0) / count)
        * sum(logs[m] * math.cos(math.pi * c * (m + 0.5) / count) for m in range(count))
        for c in range(settings.coefficients)
    ]


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(SETTINGS, window_samples=480, fft_size=512, mel_bins=20, coefficients=13, high_hz=7600),
        PrepareConfig(front_end="log_mel", high_hz="7600Hz").settings(),
    ],
    ids=["49x10", "other", "log_mel"],
)
def test_features_equal_the_slow_oracle(settings: MfccSettings) -> None:
    audio = waveforms(2)
    features = Mfcc(settings)(audio)
    for clip in range(2):
        for frame in (0, 17, features.shape[1] - 1):
            assert features[clip, frame] == pytest.approx(slow_mfcc(audio[clip], settings, frame), abs=2e-3)


def test_features_equal_torchaudio_where_it_can_do_the_same() -> None:
    settings = replace(SETTINGS, fft_size=640)
    arguments = {
        "n_fft": 640,
        "win_length": 640,
        "hop_length": 320,
        "n_mels": 40,
        "f_min": 20.0,
        "f_max": 4000.0,
        "center": False,
    }
    transform = import_torchaudio().transforms.MFCC(16_000, n_mfcc=10, log_mels=True, melkwargs=arguments)
    audio = waveforms(3)
    expected = transform(torch.from_numpy(audio) / 32768.0).transpose(1, 2).numpy()
    assert np.max(np.abs(Mfcc(settings)(audio) - expected)) < 1e-3


def test_one_second_becomes_49_frames_of_10_coefficients() -> None:
    features = Mfcc(SETTINGS)(waveforms(5))
    assert features.shape == (5, 49, 10)
    assert features.dtype == np.float32


def test_digital_silence_is_finite() -> None:
    features = Mfcc(SETTINGS)(np.zeros((1, 16_000), dtype=np.int16))
    assert features[0, :, 0] == pytest.approx(math.log(1e-6) * math.sqrt(40), rel=1e-4)


def test_number_of_threads_does_not_change_a_bit_and_is_restored() -> None:
    audio, before = waveforms(70), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = Mfcc(SETTINGS)(audio)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert Mfcc(SETTINGS)(audio).tobytes() == two.tobytes()
    finally:
        torch.set_num_threads(before)
