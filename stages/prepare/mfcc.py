"""MFCC: int16 waveforms to mel-frequency cepstral coefficients, with torchaudio's filter bank and DCT.

    frame   window_samples long, hop_samples apart, none padded: 49 frames of 40 ms every 20 ms in one second
    power   |rfft(frame * periodic Hann, zero-padded to fft_size)|^2
    mel     triangular filters of height 1, evenly spaced on the HTK mel scale
    log     natural, of mel + 1e-6
    DCT     type II, orthonormal, the first coefficients

With fft_size equal to the window this is torchaudio.transforms.MFCC(log_mels=True, center=False).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from data import SAMPLE_RATE_HZ, import_torchaudio
from stages.prepare.config import MfccSettings

LOG_FLOOR = 1e-6  # of power, full scale being 1: above the rounding noise of int16 in any mel band
_FULL_SCALE = 32_768.0


class Mfcc:
    """Computes features of many clips at once; tables are made once."""

    def __init__(self, settings: MfccSettings) -> None:
        functional = import_torchaudio().functional
        self._settings = settings
        self._window = torch.hann_window(settings.window_samples, periodic=True, dtype=torch.float32)
        self._filters = functional.melscale_fbanks(
            n_freqs=settings.fft_size // 2 + 1,
            f_min=float(settings.low_hz),
            f_max=float(settings.high_hz),
            n_mels=settings.mel_bins,
            sample_rate=SAMPLE_RATE_HZ,
            norm=None,
            mel_scale="htk",
        )
        self._dct = functional.create_dct(settings.coefficients, settings.mel_bins, norm="ortho")

    def __call__(self, waveforms: np.ndarray) -> np.ndarray:
        """(clips, samples) int16 -> (clips, frames, coefficients) float32."""
        settings = self._settings
        with torch.inference_mode(), one_thread():
            samples = torch.from_numpy(waveforms).to(torch.float32) / _FULL_SCALE
            frames = samples.unfold(1, settings.window_samples, settings.hop_samples) * self._window
            spectrum = torch.fft.rfft(frames, n=settings.fft_size)
            power = spectrum.real.square() + spectrum.imag.square()
            features = torch.log(power @ self._filters + LOG_FLOOR) @ self._dct
        return features.numpy()


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in torch may group differently with more threads; with one the bits do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
