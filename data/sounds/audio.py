"""Waveforms: WAV bytes in, one-second 16 kHz int16 clips out.

Everything here is plain numpy without BLAS, so a result does not depend on how many threads or processes work.
"""

from __future__ import annotations

import functools
import io
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.errors import StageError

Int16 = npt.NDArray[np.int16]
Float = npt.NDArray[np.float64]
Samples = TypeVar("Samples", Int16, Float)

SAMPLE_RATE_HZ = 16_000
CLIP_SAMPLES = SAMPLE_RATE_HZ  # one second, as in Speech Commands
FULL_SCALE = 32_768

_PCM = 1
_UNKNOWN_SIZE = 0x7FFF_F000  # what programs that write into a pipe put for the length
_LOWEST_HZ, _HIGHEST_HZ = 4_000, 192_000  # rates that recorders use
_ZERO_CROSSINGS = 16  # of the windowed sinc on each side: stop band below -70 dB
_PASS_BAND = 0.94  # of the lower Nyquist frequency; the rest is the filter's slope
_KAISER_BETA = 7.0
_TRIM_THRESHOLD = 0.01  # of the peak: keeps the weak final f of 'off'
_TRIM_MARGIN_SAMPLES = SAMPLE_RATE_HZ // 100


class Clips(Protocol):
    """Clips of one second that can be asked for by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Int16: ...


@dataclass(frozen=True)
class WavClips:
    """Clips that are read when they are asked for: a whole training split would fill a gigabyte."""

    folder: Path
    names: tuple[str, ...]  # CLASS/FILE
    fit: Callable[[Int16], Int16]  # to one second: `padded` or `centred`

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Int16:
        return self.fit(read_wav(f"{self.folder}/{self.names[index]}"))


def decode_wav(content: bytes, where: str, *, streamed: bool = False) -> tuple[Int16, int]:
    """Samples and sample rate of a WAV file; several channels are averaged. Refuses one that was cut off.

    `streamed`: the file came through a pipe, so its data chunk does not know its own length.
    """
    if len(content) < 12 or content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise StageError(f"{where}: {len(content)} bytes that are no WAV, needed 16-bit PCM; replace the file")
    rate_hz, channels, position = 0, 1, 12
    while position + 8 <= len(content):
        tag, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if tag == b"fmt " and position + 16 <= len(content):
            kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", content, position)
            if (kind, bits) != (_PCM, 16) or not channels or not rate_hz:
                return _decode_other(content, f"{where}: WAV format {kind}, {channels} channels, {bits} bits")
        if tag == b"data" and rate_hz:
            present = len(content) - position
            if size > present and not streamed and size < _UNKNOWN_SIZE:
                raise StageError(
                    f"{where}: WAV cut off, {present} bytes of audio where its header tells {size}; replace the file"
                )
            frames = min(size, present) // (2 * channels)
            samples = np.frombuffer(content, dtype="<i2", count=frames * channels, offset=position)
            return _mono(samples.reshape(frames, channels)), rate_hz
        position += size + size % 2
    raise StageError(f"{where}: WAV file without a data chunk, needed 16-bit PCM; replace the file")


def _decode_other(content: bytes, found: str) -> tuple[Int16, int]:
    """Other sample formats (8, 24 and 32 bits, floating point) by libsndfile."""
    import soundfile  # type: ignore[import-untyped]  # here: the corpora themselves never need it

    try:
        samples, rate_hz = soundfile.read(io.BytesIO(content), dtype="int16", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
        raise StageError(f"{found}: cannot be decoded, needed PCM or floating point; convert the file") from error
    return _mono(samples), int(rate_hz)


def _mono(frames: Int16) -> Int16:
    """(frames, channels) -> the mean of the channels, rounded."""
    if frames.shape[1] == 1:
        return frames[:, 0]
    return np.asarray(np.rint(frames.mean(axis=1, dtype=np.float64)), dtype=np.int16)


def read_wav(path: Path | str) -> Int16:
    """A recording at 16 kHz, mono; another rate is converted, several channels are averaged."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
    except OSError as error:
        raise StageError(f"{path}: cannot be read ({error.strerror}); replace the file") from error
    samples, rate_hz = decode_wav(content, str(path))
    if not len(samples):
        raise StageError(f"{path}: no samples, needed up to one second; replace the file")
    if rate_hz != SAMPLE_RATE_HZ:
        if not _LOWEST_HZ <= rate_hz <= _HIGHEST_HZ:
            raise StageError(
                f"{path}: {rate_hz} Hz, needed {SAMPLE_RATE_HZ} Hz or {_LOWEST_HZ} to {_HIGHEST_HZ} Hz to convert from"
            )
        samples = to_int16(resample(samples.astype(np.float64) / FULL_SCALE, rate_hz))
    return samples


def resample(samples: Float, from_hz: int) -> Float:
    """At 16 kHz, by a windowed-sinc polyphase filter."""
    if from_hz == SAMPLE_RATE_HZ:
        return samples
    up, down, taps, bank = _polyphase_bank(from_hz)
    count = -(-len(samples) * up // down)
    position = np.arange(count, dtype=np.int64) * down
    padded = np.concatenate([np.zeros(taps // 2 - 1), samples, np.zeros(taps // 2 + 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)[position // up]
    return np.asarray(np.einsum("nk,nk->n", windows, bank[position % up]), dtype=np.float64)


@functools.cache
def _polyphase_bank(from_hz: int) -> tuple[int, int, int, Float]:
    """Up and down factor, taps per phase, and one row of filter taps for each fraction of an input sample."""
    divisor = math.gcd(from_hz, SAMPLE_RATE_HZ)
    up, down = SAMPLE_RATE_HZ // divisor, from_hz // divisor
    cutoff = min(1.0, SAMPLE_RATE_HZ / from_hz) * _PASS_BAND
    half = math.ceil(_ZERO_CROSSINGS / cutoff)
    taps = 2 * half
    # Tap k of phase p lies (k - half + 1) - p/up input samples from the output sample.
    distance = np.arange(taps)[None, :] - (half - 1) - np.arange(up)[:, None] / up
    inside = np.clip(1.0 - (distance / half) ** 2, 0.0, None)
    bank = cutoff * np.sinc(cutoff * distance) * np.i0(_KAISER_BETA * np.sqrt(inside)) / np.i0(_KAISER_BETA)
    return up, down, taps, bank / bank.sum(axis=1, keepdims=True)  # every phase passes a constant unchanged


def trimmed(samples: Float) -> Float:
    """Without the quiet before and after, save for a margin of 10 ms."""
    loud = np.flatnonzero(np.abs(samples) > _TRIM_THRESHOLD * np.max(np.abs(samples), initial=0.0))
    if not len(loud):
        return samples[:0]
    return samples[max(0, loud[0] - _TRIM_MARGIN_SAMPLES) : loud[-1] + 1 + _TRIM_MARGIN_SAMPLES]


def padded(samples: Int16) -> Int16:
    """One second from the start; what is shorter is followed by zeros, as in the recipe of Speech Commands."""
    kept = samples[:CLIP_SAMPLES]
    return kept if len(kept) == CLIP_SAMPLES else np.pad(kept, (0, CLIP_SAMPLES - len(kept)))


def centred(samples: Samples) -> Samples:
    """One second with the samples in the middle; what is longer loses both ends."""
    surplus = max(0, len(samples) - CLIP_SAMPLES)
    kept = samples[surplus // 2 : surplus // 2 + CLIP_SAMPLES]
    before = (CLIP_SAMPLES - len(kept)) // 2
    return np.pad(kept, (before, CLIP_SAMPLES - len(kept) - before))


def to_int16(samples: Float) -> Int16:
    """Samples in [-1, 1) as int16; what is louder is clipped."""
    return np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
