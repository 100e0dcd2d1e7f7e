"""Configuration of prepare: which data set (`data`), and the front end that turns a second of audio into a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pipeline.stage import Config
from pipeline.units import Hertz, Seconds
from stages.prepare.fingerprint import folder_fingerprint

if TYPE_CHECKING:
    from data.sounds.corpus import Mixing
    from data.sounds.mfcc import MfccSettings

SAMPLE_RATE_HZ = 16_000  # of every keyword corpus


Source = Literal[
    "builtin_keywords",
    "builtin_images",
    "speech_commands_v0.01",
    "speech_commands_v0.02",
    "cifar10",
    "visual_wake_words",
    "imagenet",
    "folder",
]
_USUAL_PX = {"visual_wake_words": 96, "imagenet": 224}  # others: 32, the size of CIFAR-10


class MixingConfig(Config):
    """How training examples are made from clips of sound, where other than the data set's own way; see `Mixing`."""

    shift_s: Seconds | None = Field(default=None, lt=1)  # at most so much earlier or later; a word may be cut
    tempo: float | None = Field(default=None, ge=1, le=2)  # at most so many times as fast, or as slow
    noise_share: float | None = Field(default=None, ge=0, le=1)  # of the clips that get noise
    snr_db: tuple[float, float] | None = None  # of these, from the loudest noise to the faintest

    @model_validator(mode="after")
    def _rises(self) -> MixingConfig:
        if self.snr_db is not None and not self.snr_db[0] <= self.snr_db[1]:
            raise ValueError(f"found snr_db from {self.snr_db[0]:g} to {self.snr_db[1]:g}, needed rising")
        return self

    def applied_to(self, mixing: Mixing) -> Mixing:
        given = {name: value for name, value in self if value is not None}
        if "shift_s" in given:
            given["shift_samples"] = round(given.pop("shift_s") * SAMPLE_RATE_HZ)
        return replace(mixing, **given)


class DataConfig(Config):
    """Which data set, and how much of it."""

    source: Source = "speech_commands_v0.02"
    root: Path | None = None  # local copy in its official layout, or with `folder` your own class sub-folders
    download_dir: Path = Path(".pipeline/downloads")  # kept here, unpacked; relative to the working folder
    # copies: augmented once while preparing. on_the_fly: anew in every epoch of training, and the default of `folder`:
    # small sets need it most.
    augment: Literal["copies", "on_the_fly"] | None = None
    seed: NonNegativeInt = 1  # of noise, shift, loudness, the choice of unknown words and the built-in pictures

    # Of Speech Commands: training clips of other words for each clip of a keyword, as far as there are any. The
    # published protocol has a tenth, and the held-out splits keep it.
    unknown_share: float = Field(default=0.1, gt=0, le=2)

    voices: PositiveInt = 58  # of the built-in corpus: all that its manifest lists
    prosodies: PositiveInt = 5  # ways in which each voice of the built-in corpus says each word: 720 test clips
    copies: PositiveInt = 3  # augmented examples of each training clip; one with `augment: on_the_fly`
    mixing: MixingConfig | None = None  # None: the data set's own; only for sounds

    # Side of the pictures; None: that of network.input_shape, else what the data set is used at.
    image_px: int | None = Field(default=None, ge=8, le=224)
    image_classes: int = Field(default=10, ge=2, le=10)  # of the built-in pictures
    per_class: PositiveInt | None = None  # at most so many files of a class and split, where it applies; None: all

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.source == "folder" and self.root is None:
            raise ValueError("source folder needs root: the folder that holds the class sub-folders")
        return self

    @classmethod
    def completed(cls, values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Square pictures that the network asks for need no second mention here."""
        match sections.get("network", {}).get("input_shape"):
            case [int(height), int(width), 3] if height == width and values.get("image_px") is None:
                return {**values, "image_px": height}
        return values

    def outside(self) -> Mapping[str, str]:
        made_here = self.source in ("builtin_keywords", "builtin_images")
        return {"root": folder_fingerprint(None if made_here else self.root)}

    @property
    def on_the_fly(self) -> bool:
        return self.augment == "on_the_fly" or (self.augment is None and self.source == "folder")

    @property
    def clip_copies(self) -> int:
        return 1 if self.on_the_fly else self.copies

    @property
    def side_px(self) -> int:
        return self.image_px or _USUAL_PX.get(self.source, 32)


class PrepareConfig(Config):
    """The front end: 49 x 10 as in Zhang et al. 2017 (arXiv:1711.07128), the input of the DS-CNN networks."""

    window_s: Seconds = 0.040  # three pitch periods of a low voice
    hop_s: Seconds = 0.020  # half a window: 49 frames in one second
    fft_size: PositiveInt = 1024  # window padded to a power of two, which is what the FFT on a board wants
    mel_bins: PositiveInt = 40
    low_hz: Hertz = 20
    high_hz: Hertz = 4000  # the formants lie below; shuts out half of the noise
    # mfcc: the first coefficients of the mel bins' DCT. log_mel: the bins themselves, a picture of time and frequency.
    front_end: Literal["mfcc", "log_mel"] = "mfcc"
    coefficients: PositiveInt = 10  # of mfcc: the envelope of the spectrum; higher ones follow the pitch

    @model_validator(mode="after")
    def _consistent(self) -> PrepareConfig:
        for name, value_s in (("window_s", self.window_s), ("hop_s", self.hop_s)):
            samples = value_s * SAMPLE_RATE_HZ
            if abs(samples - round(samples)) > 1e-6 or not 1 <= round(samples) <= SAMPLE_RATE_HZ:
                raise ValueError(f"{name} is {samples:g} samples at 16 kHz, needed a whole number, at most 16000")
        if self.fft_size < round(self.window_s * SAMPLE_RATE_HZ):
            raise ValueError(f"fft_size is {self.fft_size}, needed at least the window's samples")
        if self.front_end == "mfcc" and self.coefficients > self.mel_bins:
            raise ValueError(f"coefficients is {self.coefficients}, needed at most mel_bins, {self.mel_bins}")
        if not self.low_hz < self.high_hz <= SAMPLE_RATE_HZ // 2:
            raise ValueError(f"low_hz to high_hz is {self.low_hz} to {self.high_hz}, needed rising, at most 8kHz")
        return self

    def settings(self) -> MfccSettings:
        from data.sounds.mfcc import MfccSettings  # with torch, which the engine need not load

        return MfccSettings(
            window_samples=round(self.window_s * SAMPLE_RATE_HZ),
            hop_samples=round(self.hop_s * SAMPLE_RATE_HZ),
            fft_size=self.fft_size,
            mel_bins=self.mel_bins,
            low_hz=self.low_hz,
            high_hz=self.high_hz,
            coefficients=None if self.front_end == "log_mel" else self.coefficients,
        )
