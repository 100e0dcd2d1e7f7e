"""MFCC: int16 waveforms to mel-frequency cepstral coefficients, with torchaudio's filter bank and DCT.

    frame   window_samples long, hop_samples apart, none padded: 49 frames of 40 ms every 20 ms in one second
    power   |rfft(frame * periodic Hann, zero-padded to fft_size)|^2
    mel     triangular filters of height 1, evenly spaced on the HTK mel scale
    log     natural, of mel + 1e-6
    DCT     type II, orthonormal, the first coefficients; left out where `coefficients` is None: log-mel features

This is torchaudio.transforms.MFCC(log_mels=True, center=False) of a waveform padded by (fft_size - window) / 2 zeros on
both sides. The features stay within 2e-4 of torchaudio in double precision, all but one in 10,000 within 1e-4: as
close as torchaudio itself stays in single precision, where the FFT of a loud frame leaves that much in its quiet bins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from data.compat import import_torchaudio
from data.sounds.audio import CLIP_SAMPLES, FULL_SCALE, SAMPLE_RATE_HZ, Int16

LOG_FLOOR = 1e-6  # of power, full scale being 1: above the rounding noise of int16 in any mel band
_CLIPS_AT_ONCE = 8  # their frames and spectra stay in the cache of a core: 64 take twice as long a clip


@dataclass(frozen=True, kw_only=True)
class MfccSettings:
    """The front end in samples, as dataset.json and augmentation.json record it."""

    window_samples: int
    hop_samples: int
    fft_size: int
    mel_bins: int
    low_hz: int
    high_hz: int
    coefficients: int | None  # None: no DCT, the features are the logarithms of the mel bins

    @property
    def columns(self) -> int:
        """Features of a frame."""
        return self.mel_bins if self.coefficients is None else self.coefficients


class Mfcc:
    """Computes features of many clips at once; tables are made once."""

    def __init__(self, settings: MfccSettings) -> None:
        functional = import_torchaudio().functional
        self._settings = settings
        window = torch.hann_window(settings.window_samples, periodic=True, dtype=torch.float32)
        self._window = window / FULL_SCALE
        filters = functional.melscale_fbanks(
            n_freqs=settings.fft_size // 2 + 1,
            f_min=float(settings.low_hz),
            f_max=float(settings.high_hz),
            n_mels=settings.mel_bins,
            sample_rate=SAMPLE_RATE_HZ,
            norm=None,
            mel_scale="htk",
        )
        heard = torch.nonzero(filters.sum(dim=1))
        low, high = int(heard.min()), int(heard.max()) + 1  # no filter looks at the other bins
        # Real and imaginary parts lie side by side; each is squared and then weighted like its bin. That is one pass
        # over the spectrum less than adding them up first.
        self._band = slice(2 * low, 2 * high)
        self._filters = filters[low:high].repeat_interleave(2, dim=0).contiguous()
        self._dct = None
        if settings.coefficients is not None:
            self._dct = functional.create_dct(settings.coefficients, settings.mel_bins, norm="ortho")
        frames = 1 + (CLIP_SAMPLES - settings.window_samples) // settings.hop_samples
        # Used again and again: behind the window it stays zero.
        self._padded = torch.zeros(_CLIPS_AT_ONCE, frames, settings.fft_size)

    def __call__(self, waveforms: Int16) -> npt.NDArray[np.float32]:
        """(clips, samples) int16 -> (clips, frames, columns) float32; a clip's bits do not depend on the others.

        Groups are always of the same size, filled up with silence: products of other sizes may round otherwise.
        """
        parts = []
        with torch.inference_mode(), one_thread():
            for start in range(0, len(waveforms), _CLIPS_AT_ONCE):
                group = waveforms[start : start + _CLIPS_AT_ONCE]
                missing = _CLIPS_AT_ONCE - len(group)
                whole = group if not missing else np.pad(group, ((0, missing), (0, 0)))
                parts.append(self._features(torch.from_numpy(np.ascontiguousarray(whole)))[: len(group)].numpy())
        return np.concatenate(parts)

    def _features(self, waveforms: Any) -> Any:
        settings = self._settings
        frames = waveforms.to(torch.float32).unfold(1, settings.window_samples, settings.hop_samples)
        torch.mul(frames, self._window, out=self._padded[..., : settings.window_samples])
        squares = torch.view_as_real(torch.fft.rfft(self._padded)).flatten(-2)[..., self._band].square_()
        logarithms = torch.log(squares @ self._filters + LOG_FLOOR)
        return logarithms if self._dct is None else logarithms @ self._dct


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in torch may group differently with more threads; with one the bits do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
