"""Waveforms: WAV decoding, resampling, trimming, centring."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from data.sounds.audio import centred, decode_wav, read_wav, resample, to_int16, trimmed
from pipeline.errors import StageError

PCM = np.array([0, 1, -1, 32767, -32768], dtype=np.int16)


def wav_bytes(samples: np.ndarray, rate_hz: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate_hz)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def test_wav_from_the_standard_library_is_decoded() -> None:
    samples, rate_hz = decode_wav(wav_bytes(PCM, 22_050), "clip")
    assert rate_hz == 22_050
    assert samples.tolist() == PCM.tolist()


def test_streamed_wav_without_a_length_is_decoded() -> None:
    content = bytearray(wav_bytes(PCM))
    struct.pack_into("<I", content, 40, 0x7FFFF000)
    assert decode_wav(bytes(content), "clip", streamed=True)[0].tolist() == PCM.tolist()
    assert decode_wav(bytes(content), "clip")[0].tolist() == PCM.tolist(), "this length means: unknown"


def test_chunks_before_the_data_are_skipped() -> None:
    content = wav_bytes(PCM)
    extra = content[:36] + struct.pack("<4sI", b"LIST", 3) + b"abc\0" + content[36:]
    assert decode_wav(extra, "clip")[0].tolist() == PCM.tolist()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "clip: 0 bytes that are no WAV, needed 16-bit PCM; replace the file"),
        (b"OggS" + bytes(100), "clip: 104 bytes that are no WAV"),
        (b"RIFF1234AVI " + bytes(9), "clip: 21 bytes that are no WAV"),
        (b"RIFF1234WAV", "clip: 11 bytes that are no WAV"),
        (b"RIFF1234WAVE", "clip: WAV file without a data chunk"),
        (wav_bytes(PCM)[:12] + wav_bytes(PCM)[36:], "clip: WAV file without a data chunk"),
        (wav_bytes(PCM)[:22] + bytes(2) + wav_bytes(PCM)[24:], "clip: WAV format 1, 0 channels, 16 bits"),
        (wav_bytes(PCM)[:24] + bytes(4) + wav_bytes(PCM)[28:], "clip: WAV format 1, 1 channels, 16 bits"),
        (wav_bytes(PCM)[:36], "clip: WAV file without a data chunk"),
        (wav_bytes(PCM)[:30], "clip: WAV file without a data chunk"),
        (wav_bytes(PCM)[:-3], "clip: WAV cut off, 7 bytes of audio where its header tells 10; replace the file"),
        (
            wav_bytes(PCM).replace(b"\x01\x00\x01\x00", b"\x55\x00\x01\x00", 1),
            "clip: WAV format 85, 1 channels, 16 bits",
        ),
    ],
)
def test_what_is_no_whole_wav_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(StageError, match=sentence):
        decode_wav(content, "clip")


def test_two_channels_become_their_mean() -> None:
    left_right = np.array([100, 200, -5, -8, 32767, 32767], dtype=np.int16)
    assert decode_wav(wav_bytes(left_right, channels=2), "clip")[0].tolist() == [150, -6, 32767]


def test_other_sample_formats_are_converted() -> None:
    eight_bits = np.array([0, 128, 255], dtype=np.uint8)
    assert decode_wav(wav_bytes(eight_bits, width=1), "clip")[0].tolist() == [-32768, 0, 32512]


def test_another_rate_is_converted_when_a_file_is_read(tmp_path: Path) -> None:
    time_s = np.arange(8000) / 8000
    tone = np.rint(9000 * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16)
    (tmp_path / "tone.wav").write_bytes(wav_bytes(tone, 8000))
    expected = 9000 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert np.max(np.abs(read_wav(tmp_path / "tone.wav")[200:-200] - expected[200:-200])) < 20


def test_rate_that_no_recorder_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.wav").write_bytes(wav_bytes(PCM, 11))
    with pytest.raises(StageError, match="odd.wav: 11 Hz, needed 16000 Hz or 4000 to 192000 Hz"):
        read_wav(tmp_path / "odd.wav")
    for rate_hz in (4_000, 192_000):
        (tmp_path / "odd.wav").write_bytes(wav_bytes(np.repeat(PCM, 12), rate_hz))
        assert len(read_wav(tmp_path / "odd.wav")) == 60 * 16_000 // rate_hz
    for rate_hz in (3_999, 192_001):
        (tmp_path / "odd.wav").write_bytes(wav_bytes(PCM, rate_hz))
        with pytest.raises(StageError, match=f"odd.wav: {rate_hz} Hz, needed"):
            read_wav(tmp_path / "odd.wav")


def slow_resampled(samples: np.ndarray, from_hz: int, to_hz: int = 16_000) -> np.ndarray:
    """Each output sample as its own sum over all input samples: sinc times Kaiser window, weights summing to one."""
    cutoff = min(1.0, to_hz / from_hz) * 0.94
    half = int(np.ceil(16 / cutoff))
    result = []
    for n in range(-(-len(samples) * to_hz // from_hz)):
        centre = n * from_hz / to_hz
        total = weights = 0.0
        for k in range(int(np.floor(centre)) - half + 1, int(np.floor(centre)) + half + 1):
            distance = k - centre
            window = np.i0(7.0 * np.sqrt(max(0.0, 1 - (distance / half) ** 2)))
            weight = np.sinc(cutoff * distance) * window
            weights += weight
            total += weight * (samples[k] if 0 <= k < len(samples) else 0.0)
        result.append(total / weights)
    return np.array(result)


@pytest.mark.parametrize("from_hz", [22_050, 8_000, 48_000])
def test_resampling_equals_the_slow_sum(from_hz: int) -> None:
    samples = np.random.default_rng(3).standard_normal(120)
    assert np.max(np.abs(resample(samples, from_hz) - slow_resampled(samples, from_hz))) < 1e-12


def test_resampling_keeps_a_tone_and_removes_what_would_alias() -> None:
    time_s = np.arange(22_050) / 22_050
    middle = slice(1000, 15_000)
    expected = np.sin(2 * np.pi * 3000 * np.arange(16_000) / 16_000)
    assert np.max(np.abs((resample(np.sin(2 * np.pi * 3000 * time_s), 22_050) - expected)[middle])) < 1e-3
    assert np.max(np.abs(resample(np.sin(2 * np.pi * 9500 * time_s), 22_050)[middle])) < 1e-3


def test_same_rate_changes_nothing() -> None:
    samples = np.array([0.25, -0.5])
    assert resample(samples, 16_000).tolist() == [0.25, -0.5]


def test_trimming_keeps_ten_milliseconds_around_the_sound() -> None:
    samples = np.zeros(4000)
    samples[1000:2000] = 0.5
    samples[500] = 0.005  # one per cent of the peak is not more than that
    assert len(trimmed(samples)) == 1000 + 2 * 160
    assert len(trimmed(np.zeros(100))) == 0
    assert len(trimmed(samples[950:])) == 50 + 1000 + 160


def test_centring_pads_short_and_cuts_long_clips_to_one_second() -> None:
    short = centred(np.ones(3))
    assert short.shape == (16_000,)
    assert np.flatnonzero(short).tolist() == [7998, 7999, 8000]
    assert centred(np.arange(16_004.0))[[0, -1]].tolist() == [2.0, 16_001.0]


def test_int16_conversion_rounds_and_clips() -> None:
    assert to_int16(np.array([0.0, 0.6 / 32768, 1.0, -1.0, -2.0])).tolist() == [0, 1, 32767, -32768, -32768]
