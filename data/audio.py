"""Waveforms: WAV bytes in, one-second 16 kHz int16 clips out.

Everything here is plain numpy without BLAS, so a result does not depend on how many threads or processes work.
"""

from __future__ import annotations

import functools
import math
import struct

import numpy as np
import numpy.typing as npt

from pipeline.errors import StageError

Int16 = npt.NDArray[np.int16]
Float = npt.NDArray[np.float64]

SAMPLE_RATE_HZ = 16_000
CLIP_SAMPLES = SAMPLE_RATE_HZ  # one second, as in Speech Commands
FULL_SCALE = 32_768

_PCM = 1
_ZERO_CROSSINGS = 16  # of the windowed sinc on each side: stop band below -70 dB
_PASS_BAND = 0.94  # of the lower Nyquist frequency; the rest is the filter's slope
_KAISER_BETA = 7.0
_TRIM_THRESHOLD = 0.01  # of the peak: keeps the weak final f of 'off'
_TRIM_MARGIN_SAMPLES = SAMPLE_RATE_HZ // 100


def decode_wav(content: bytes, where: str) -> tuple[Int16, int]:
    """Samples and sample rate of a mono 16-bit PCM WAV file; the data chunk may lack its length, as from a pipe."""
    if len(content) < 12 or content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise StageError(f"{where}: {len(content)} bytes that are no WAV, needed mono 16-bit PCM; replace the file")
    rate_hz, position = 0, 12
    while position + 8 <= len(content):
        tag, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if tag == b"fmt " and position + 16 <= len(content):
            kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", content, position)
            if (kind, channels, bits) != (_PCM, 1, 16):
                raise StageError(
                    f"{where}: WAV format {kind}, {channels} channels, {bits} bits, needed mono 16-bit PCM; convert it"
                )
        if tag == b"data" and rate_hz:
            whole = (min(size, len(content) - position) // 2) * 2
            return np.frombuffer(content, dtype="<i2", count=whole // 2, offset=position).astype(np.int16), rate_hz
        position += size + size % 2
    raise StageError(f"{where}: WAV file without a data chunk, needed mono 16-bit PCM; replace the file")


def resample(samples: Float, from_hz: int, to_hz: int = SAMPLE_RATE_HZ) -> Float:
    """Change the sample rate by a windowed-sinc polyphase filter."""
    if from_hz == to_hz:
        return samples
    up, down, taps, bank = _polyphase_bank(from_hz, to_hz)
    count = -(-len(samples) * up // down)
    position = np.arange(count, dtype=np.int64) * down
    padded = np.concatenate([np.zeros(taps // 2 - 1), samples, np.zeros(taps // 2 + 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)[position // up]
    return np.asarray(np.einsum("nk,nk->n", windows, bank[position % up]), dtype=np.float64)


@functools.cache
def _polyphase_bank(from_hz: int, to_hz: int) -> tuple[int, int, int, Float]:
    """Up and down factor, taps per phase, and one row of filter taps for each fraction of an input sample."""
    divisor = math.gcd(from_hz, to_hz)
    up, down = to_hz // divisor, from_hz // divisor
    cutoff = min(1.0, to_hz / from_hz) * _PASS_BAND
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


def centred(samples: Float) -> Float:
    """One second with the samples in the middle; what is longer loses both ends."""
    surplus = max(0, len(samples) - CLIP_SAMPLES)
    kept = samples[surplus // 2 : surplus // 2 + CLIP_SAMPLES]
    before = (CLIP_SAMPLES - len(kept)) // 2
    return np.pad(kept, (before, CLIP_SAMPLES - len(kept) - before))


def to_int16(samples: Float) -> Int16:
    """Samples in [-1, 1) as int16; what is louder is clipped."""
    return np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
