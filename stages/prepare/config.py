"""Configuration of prepare: which corpus (`data`), and the front end that turns a second of audio into a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from pipeline.stage import Config
from pipeline.units import Hertz, Seconds

SAMPLE_RATE_HZ = 16_000  # of every keyword corpus


class DataConfig(Config):
    """Which corpus, and how much of it."""

    source: Literal["builtin_keywords", "speech_commands_v0.01", "speech_commands_v0.02"] = "speech_commands_v0.02"
    root: Path | None = None  # local copy of Speech Commands in its official layout
    voices: PositiveInt = 58  # of the built-in corpus: all that its manifest lists
    prosodies: PositiveInt = 5  # ways in which each voice of the built-in corpus says each word: 720 test clips
    copies: PositiveInt = 3  # augmented examples of each training clip
    seed: NonNegativeInt = 1  # of noise, shift, loudness and the choice of unknown words


@dataclass(frozen=True, kw_only=True)
class MfccSettings:
    """The front end in samples."""

    window_samples: int
    hop_samples: int
    fft_size: int
    mel_bins: int
    low_hz: int
    high_hz: int
    coefficients: int


class PrepareConfig(Config):
    """The front end: 49 x 10 as in Zhang et al. 2017 (arXiv:1711.07128), the input of the DS-CNN networks."""

    window_s: Seconds = 0.040  # three pitch periods of a low voice
    hop_s: Seconds = 0.020  # half a window: 49 frames in one second
    fft_size: PositiveInt = 1024  # window padded to a power of two, which is what the FFT on a board wants
    mel_bins: PositiveInt = 40
    low_hz: Hertz = 20
    high_hz: Hertz = 4000  # the formants lie below; shuts out half of the noise
    coefficients: PositiveInt = 10  # the envelope of the spectrum; higher ones follow the pitch

    @model_validator(mode="after")
    def _consistent(self) -> PrepareConfig:
        for name, value_s in (("window_s", self.window_s), ("hop_s", self.hop_s)):
            samples = value_s * SAMPLE_RATE_HZ
            if abs(samples - round(samples)) > 1e-6 or not 1 <= round(samples) <= SAMPLE_RATE_HZ:
                raise ValueError(f"{name} is {samples:g} samples at 16 kHz, needed a whole number, at most 16000")
        if self.fft_size < round(self.window_s * SAMPLE_RATE_HZ):
            raise ValueError(f"fft_size is {self.fft_size}, needed at least the window's samples")
        if self.coefficients > self.mel_bins:
            raise ValueError(f"coefficients is {self.coefficients}, needed at most mel_bins, {self.mel_bins}")
        if not self.low_hz < self.high_hz <= SAMPLE_RATE_HZ // 2:
            raise ValueError(f"low_hz to high_hz is {self.low_hz} to {self.high_hz}, needed rising, at most 8kHz")
        return self

    def settings(self) -> MfccSettings:
        return MfccSettings(
            window_samples=round(self.window_s * SAMPLE_RATE_HZ),
            hop_samples=round(self.hop_s * SAMPLE_RATE_HZ),
            fft_size=self.fft_size,
            mel_bins=self.mel_bins,
            low_hz=self.low_hz,
            high_hz=self.high_hz,
            coefficients=self.coefficients,
        )
