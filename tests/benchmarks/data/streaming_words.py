"""Words found and missed in an hour of noisy audio, on the host, with the front end and the smoothing of the firmware.

    python -m tests.benchmarks.data.streaming_words MODEL.tflite --set data.root=FOLDER [--minutes 60] [--snr 10]

Audio: one slot of three seconds after the other, in each a clip of the split (every fifth an unknown word) at a random
time, as loud as the median of the data set, over the split's background noise, so loud that the word is `--snr` dB
above it; no clip comes again before all have come, so that one with a wrong label counts no oftener than the others.
The network looks at the last second every 100 ms. Sums and detections are those of `boards/firmware/audio/stream.c`,
bit for bit for the same features (`stream_reference`, which every run with `firmware.front_end=kws_stream` holds
against the twin); features are the host's, of which the firmware's differ by one step in one of a thousand at most
(`measure.audio.front_end`). `firmware.stream.smooth_runs` and `threshold` are those with the fewest misses on audio of
the validation split among those with at most two false alarms an hour; then the audio of the test split is listened to
once.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data import CLIP_SAMPLES, SAMPLE_RATE_HZ, Corpus, Split
from data.fetching.manifest import SILENCE, UNKNOWN
from data.sounds.corpus import NO_CLIP
from data.sounds.mfcc import Mfcc, MfccSettings
from pipeline.stage import read_json
from stages.firmware.config import StreamConfig
from stages.firmware.front_end import stream_of
from stages.graph.arithmetic.int8_batch import batch_network
from stages.graph.arithmetic.int8_pointwise import on_grid
from stages.graph.graph import Graph
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.task import Task, read_task, task_of
from stages.measure.audio.detections import DetectedWord, DetectionScore, SpokenWord, score_detections
from stages.measure.audio.listening import GRACE_S
from stages.measure.audio.stream_reference import StreamSettings, reference_stream
from stages.prepare.config import DataConfig
from stages.prepare.dataset import standardise
from stages.prepare.source import open_data
from stages.prepare.workers import spread
from stages.tools.zoo.evaluation import front_end
from tests.stages.qat.small_task import Quiet

SLOT_S = 3
UNKNOWN_EVERY = 5
_LATEST_START_S = SLOT_S - 1.5
_WORD_RMS = 10 ** (-22 / 20) * 32768  # of the loud part: half of the data set's words are louder
_LOUD = 0.1  # of a clip's peak: where its word begins and ends
_MOST_FALSE_ALARMS_PER_HOUR = 2
SMOOTHED_RUNS = (3, 5, 8)
THRESHOLDS = (0.4, 0.6, 0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993, 0.996, 1.0)


@dataclass(frozen=True, eq=False)
class Heard:
    """What the network says every 100 ms of some audio, and what was said there."""

    seconds: float
    spoken: tuple[SpokenWord, ...]
    features: np.ndarray  # (hops, coefficients) int8
    scores: np.ndarray  # (runs, classes) int8


def audio(corpus: Corpus, split: Split, minutes: float, snr_db: float) -> tuple[np.ndarray, tuple[SpokenWord, ...]]:
    """int16 samples, and the words in them."""
    part, rng = corpus.splits[split], np.random.default_rng([20, corpus.seed])
    unknown = corpus.classes.index(UNKNOWN)
    words, others = (
        _in_turn(np.flatnonzero((part.takes != NO_CLIP) & is_wanted), rng)
        for is_wanted in (part.labels != unknown, part.labels == unknown)
    )
    slots = int(minutes * 60 / SLOT_S)
    noise = np.resize(
        np.concatenate([each / np.sqrt(np.mean(each**2)) for each in part.noises]), slots * SLOT_S * SAMPLE_RATE_HZ
    )
    samples, spoken = noise * (_WORD_RMS / 10 ** (snr_db / 20)), []
    for slot in range(slots):
        is_word = slot % UNKNOWN_EVERY != UNKNOWN_EVERY - 1
        number = next(words if is_word else others)
        clip = part.clips[int(part.takes[number])].astype(np.float64)
        loud = np.flatnonzero(np.abs(clip) > _LOUD * np.abs(clip).max())
        first, last = int(loud[0]), int(loud[-1]) + 1
        clip *= _WORD_RMS / max(1.0, float(np.sqrt(np.mean(clip[first:last] ** 2))))
        start = round((slot * SLOT_S + rng.uniform(0.0, _LATEST_START_S)) * SAMPLE_RATE_HZ)
        samples[start : start + len(clip)] += clip
        begin, end = ((start + place) / SAMPLE_RATE_HZ for place in (first, last))
        spoken.append(SpokenWord(begin, end, int(part.labels[number]) if is_word else None))
    return np.clip(np.round(samples), -32768, 32767).astype(np.int16), tuple(spoken)


def _in_turn(numbers: np.ndarray, rng: np.random.Generator) -> Iterator[int]:
    """All of them in random order, again and again."""
    while True:
        yield from rng.permutation(numbers)


def stream_features(samples: np.ndarray, settings: MfccSettings, task: Task, graph: Graph) -> np.ndarray:
    """(hops, coefficients) int8; consecutive clips of a second overlap by what a window is longer than a hop."""
    mfcc = Mfcc(settings)
    frames = 1 + (CLIP_SAMPLES - settings.window_samples) // settings.hop_samples
    starts = range(0, len(samples) - CLIP_SAMPLES + 1, frames * settings.hop_samples)
    mean, std = (np.array(values, np.float32) for values in (task.feature_mean, task.feature_std))
    entry = replace(graph.tensors[graph.inputs[0]], shape=(1, settings.columns))

    def some(number: int) -> np.ndarray:
        clips = np.stack([samples[start : start + CLIP_SAMPLES] for start in starts[64 * number : 64 * number + 64]])
        found = mfcc(clips)
        standardise(found, 2, mean, std)
        return on_grid(found.reshape(-1, settings.columns), entry)

    return np.concatenate(list(spread(some, -(-len(starts) // 64))))


def heard(
    graph: Graph, task: Task, corpus: Corpus, split: Split, minutes: float, snr_db: float, run_hops: int
) -> Heard:
    samples, spoken = audio(corpus, split, minutes, snr_db)
    features = stream_features(samples, front_end(task), task, graph)
    network, frames = batch_network(graph), graph.tensors[graph.inputs[0]].shape[1]
    ends = range(frames, len(features) + 1, run_hops)

    def some(number: int) -> np.ndarray:
        part = ends[256 * number : 256 * number + 256]
        inputs = np.stack([features[end - frames : end, :, np.newaxis] for end in part])
        return network(inputs).reshape(len(part), -1)

    scores = np.concatenate(list(spread(some, -(-len(ends) // 256))))
    return Heard(len(samples) / SAMPLE_RATE_HZ, spoken, features, scores)


def score(found: Heard, frames: int, settings: StreamSettings, mfcc: MfccSettings) -> DetectionScore:
    trace = reference_stream(found.features, frames, lambda _: found.scores, settings)
    window, hop = mfcc.window_samples, mfcc.hop_samples
    detected = [DetectedWord((window + (each.hop - 1) * hop) / SAMPLE_RATE_HZ, each.word) for each in trace.detections]
    return score_detections(found.spoken, detected, GRACE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", default="speech_commands_v0.01")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--task", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--validation-minutes", type=float, default=120.0)
    parser.add_argument("--snr", type=float, default=10.0)
    asked = parser.parse_args()
    task = read_task(asked.model) if asked.task is None else task_of(read_json(asked.task))
    assert task is not None, "the file says nothing of its front end; add --task dataset.json"
    graph, mfcc = read_tflite(asked.model), front_end(task)
    given = dict(each.removeprefix("data.").split("=", 1) for each in asked.set)
    corpus = open_data(DataConfig(source=asked.data, **given), Quiet())
    assert isinstance(corpus, Corpus) and corpus.classes == task.classes and SILENCE in task.classes
    frames = graph.tensors[graph.inputs[0]].shape[1]

    def settings(smooth_runs: int, threshold: float) -> StreamSettings:
        config = StreamConfig(smooth_runs=smooth_runs, threshold=threshold)
        made = stream_of(config, graph, task.classes, mfcc.hop_samples / SAMPLE_RATE_HZ)
        return StreamSettings(
            run_hops=made.run_hops, smooth_runs=made.smooth_runs, threshold_sum=made.threshold_sum,
            refractory_hops=made.refractory_hops, is_word=made.is_word,
        )  # fmt: skip

    run_hops = settings(1, 1.0).run_hops
    tried = heard(graph, task, corpus, "validation", asked.validation_minutes, asked.snr, run_hops)
    hours = tried.seconds / 3600
    sys.stdout.write(f"validation, {60 * hours:.0f} min: smooth_runs, threshold, missed, false alarms an hour\n")
    scores = {}
    for choice in itertools.product(SMOOTHED_RUNS, THRESHOLDS):
        found = scores[choice] = score(tried, frames, settings(*choice), mfcc)
        missed = f"{found.misses:4} of {found.words}"
        sys.stdout.write(f"{choice[0]:2} {choice[1]:6.3f} {missed} {found.false_alarms / hours:8.1f}\n")
    sparing = [each for each in scores if scores[each].false_alarms <= _MOST_FALSE_ALARMS_PER_HOUR * hours]
    chosen = min(sparing or scores, key=lambda each: scores[each].misses)
    tested = heard(graph, task, corpus, "test", asked.minutes, asked.snr, run_hops)
    last = score(tested, frames, settings(*chosen), mfcc)
    sys.stdout.write(
        f"test, {tested.seconds / 60:.0f} min at {asked.snr:g} dB, smooth_runs {chosen[0]}, threshold {chosen[1]:g}: "
        f"{last.misses} of {last.words} "
        f"words missed ({100 * last.misses / last.words:.1f} %), {last.false_alarms} false alarms "
        f"({last.false_alarms * 3600 / tested.seconds:.1f} an hour), mean delay {last.mean_delay_s or 0:.2f} s\n"
    )


if __name__ == "__main__":
    main()
