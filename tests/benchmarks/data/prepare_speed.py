"""Clips a second of `prepare` (decode + MFCC) against a plain loop of soundfile and torchaudio, in one run.

    python -m tests.benchmarks.data.prepare_speed [--clips 25000] [--root FOLDER_OF_WAVS]

Both read the same one-second .wav files from the page cache. The plain loop decodes one clip with soundfile, computes
torchaudio.transforms.MFCC with the same settings, and collects the results; it may use as many threads as torch likes,
or one, whichever is faster here. Exit code 1 when prepare is less than 5 times as fast, needs 2 GB, or differs by over
2e-4.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import wave
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import soundfile
import torch

from data import CLIP_SAMPLES, Corpus
from data.compat import import_torchaudio
from data.sounds.audio import WavClips, padded
from data.sounds.corpus import AS_RECORDED, SplitAudio
from data.sounds.mfcc import Mfcc
from stages.prepare.config import PrepareConfig
from stages.prepare.dataset import write_features

NEEDED_RATIO, NEEDED_BYTES, NEEDED_DIFFERENCE = 5.0, 2e9, 2e-4
SETTINGS = PrepareConfig().settings()


def make_clips(folder: Path, count: int) -> None:
    """Clips that differ: noise with a moving tone."""
    rng, time_s = np.random.default_rng(0), np.arange(CLIP_SAMPLES) / CLIP_SAMPLES
    noise = rng.standard_normal(10 * CLIP_SAMPLES)
    for i in range(count):
        start = int(rng.integers(9 * CLIP_SAMPLES))
        tone = np.sin(2 * np.pi * rng.uniform(100, 3000) * time_s * (1 + 0.2 * time_s)) * np.hanning(CLIP_SAMPLES)
        samples = (4000 * tone + 300 * noise[start : start + CLIP_SAMPLES]).astype("<i2")
        with wave.open(str(folder / f"{i:05d}.wav"), "wb") as file:
            file.setparams((1, 2, CLIP_SAMPLES, 0, "NONE", ""))
            file.writeframes(samples.tobytes())


def torchaudio_mfcc() -> torch.nn.Module:
    """The reference; it wants the waveform padded to frames of fft_size."""
    arguments = {
        "n_fft": SETTINGS.fft_size,
        "win_length": SETTINGS.window_samples,
        "hop_length": SETTINGS.hop_samples,
        "n_mels": SETTINGS.mel_bins,
        "f_min": float(SETTINGS.low_hz),
        "f_max": float(SETTINGS.high_hz),
        "center": False,
    }
    n_mfcc = SETTINGS.coefficients
    transform: torch.nn.Module = import_torchaudio().transforms.MFCC(
        16_000, n_mfcc=n_mfcc, log_mels=True, melkwargs=arguments
    )
    return transform


def plain_loop(paths: list[Path], dtype: torch.dtype = torch.float32) -> np.ndarray:
    transform, side = torchaudio_mfcc().to(dtype), (SETTINGS.fft_size - SETTINGS.window_samples) // 2
    features = []
    for path in paths:
        samples, _ = soundfile.read(path, dtype="float32")
        padded = np.zeros(CLIP_SAMPLES + 2 * side, dtype=np.float32)
        kept = samples[:CLIP_SAMPLES]
        padded[side : side + len(kept)] = kept
        features.append(transform(torch.from_numpy(padded).to(dtype)).T.numpy())
    return np.stack(features)


def seconds(function: object, *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def corpus_of(paths: list[Path]) -> Corpus:
    def split(names: list[Path]) -> SplitAudio:
        return SplitAudio(
            clips=WavClips(paths[0].parent.parent, tuple(f"{path.parent.name}/{path.name}" for path in names), padded),
            takes=np.arange(len(names), dtype=np.int64),
            labels=np.zeros(len(names), dtype=np.int64),
            noises=(),
            mixing=AS_RECORDED,
            speakers=(),
        )

    splits = {"train": split(paths[128:]), "validation": split(paths[:64]), "test": split(paths[64:128])}
    return Corpus(source="benchmark", classes=("all",), seed=0, splits=splits)


def measured(paths: list[Path], out: Path) -> dict[str, float]:
    threads = torch.get_num_threads()
    some = paths[:1000]
    for path in paths:
        path.read_bytes()  # into the page cache, for both
    by_threads = {}
    for count in sorted({1, threads}):
        torch.set_num_threads(count)
        plain_loop(some[:50])
        by_threads[count] = len(some) / seconds(plain_loop, some)
    torch.set_num_threads(max(by_threads, key=by_threads.__getitem__))
    # Half of the plain loop before, half after, so that a busy neighbour meets both.
    half = len(paths) // 2
    plain_s = seconds(plain_loop, paths[:half])
    prepare_s, peak_bytes = watched_prepare(paths, out)
    plain_s += seconds(plain_loop, paths[half:])
    torch.set_num_threads(threads)
    return {
        "clips": len(paths),
        "plain_clips_per_s": len(paths) / plain_s,
        "prepare_clips_per_s": len(paths) / prepare_s,
        "ratio": plain_s / prepare_s,
        "peak_bytes": peak_bytes,
        "largest_difference": difference(paths[128:628]),
    }


def watched_prepare(paths: list[Path], out: Path) -> tuple[float, int]:
    """Seconds of `write_features` in a process of its own, and the most memory it and its workers had at one time."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=prepare_alone, args=(paths, out, writer))
    process.start()
    peak_bytes = 0
    while not reader.poll(0.5):  # more often would slow it down
        peak_bytes = max(peak_bytes, memory_bytes(process.pid or 0))
        if not process.is_alive() and not reader.poll():
            raise RuntimeError("prepare failed, see above")
    process.join()
    return reader.recv(), peak_bytes


def prepare_alone(paths: list[Path], out: Path, writer: Connection) -> None:
    writer.send(seconds(write_features, corpus_of(paths), SETTINGS, out / "features", lambda count: None))


def memory_bytes(process: int) -> int:
    """Proportional set size of a process and its children: what they share is counted once."""
    total = 0
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            total += sum(memory_bytes(int(child)) for child in children.read_text().split())
    except OSError:
        pass  # it ended meanwhile
    return total


def difference(paths: list[Path]) -> float:
    """From torchaudio in double precision, before standardisation."""
    expected = plain_loop(paths, torch.float64)
    clips = WavClips(paths[0].parent.parent, tuple(f"{path.parent.name}/{path.name}" for path in paths))
    found = Mfcc(SETTINGS)(np.stack([clips[i] for i in range(len(clips))]))
    return float(np.max(np.abs(found - expected)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=25_000)
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if options.root is None:
            folder = Path(temporary) / "clips" / "word"
            folder.mkdir(parents=True)
            make_clips(folder, options.clips)
            paths = sorted(folder.glob("*.wav"))
        else:
            paths = sorted(options.root.glob("*/*.wav"))[: options.clips]
        result = measured(paths, Path(temporary))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    good = (
        result["ratio"] >= NEEDED_RATIO
        and result["peak_bytes"] < NEEDED_BYTES
        and result["largest_difference"] < NEEDED_DIFFERENCE
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
