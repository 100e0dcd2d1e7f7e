"""The front end's tables against torchaudio's, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from data.compat import import_torchaudio
from data.sounds import mfcc as host
from pipeline.errors import StageError
from pipeline.stage import read_json
from stages.firmware.config import StreamConfig
from stages.firmware.front_end import LOG_FLOOR, dct_matrix, design_front_end, mel_filters
from stages.firmware.front_end_source import front_end_header, front_end_source, stream_settings
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import Graph, Quantisation
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.front_ends import CLASSES, KWS, RATE_HZ, Task, make_task

BOARD = "nucleo_f767zi"


@pytest.mark.parametrize(("points", "mel_bins", "low_hz", "high_hz"), [(1024, 40, 20, 4000), (512, 23, 0, 8000)])
def test_mel_filters_are_those_of_torchaudio(points: int, mel_bins: int, low_hz: int, high_hz: int) -> None:
    theirs = import_torchaudio().functional.melscale_fbanks(
        points // 2 + 1, float(low_hz), float(high_hz), mel_bins, RATE_HZ, norm=None, mel_scale="htk"
    )
    ours = mel_filters(points // 2 + 1, RATE_HZ, mel_bins, low_hz, high_hz)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)
    assert ours.max() > 0.9


def test_dct_is_that_of_torchaudio() -> None:
    theirs = import_torchaudio().functional.create_dct(10, 40, norm="ortho").numpy().T
    np.testing.assert_allclose(dct_matrix(10, 40), theirs, atol=1e-6)


def test_log_floor_is_the_hosts() -> None:
    assert LOG_FLOOR == host.LOG_FLOOR


def test_sparse_filters_hold_every_weight_of_the_bank_once() -> None:
    task = make_task()
    front_end = design_front_end("mfcc", StreamConfig(), task.record, task.graph)
    whole = mel_filters(513, RATE_HZ, 40, 20, 4000) / 4
    for mel, (first, weights) in enumerate(front_end.filters):
        start = front_end.first_bin + first
        np.testing.assert_array_equal(whole[start : start + len(weights), mel], weights)
        assert whole[:, mel].sum() == pytest.approx(weights.sum())
        assert first + len(weights) <= front_end.bins


def test_a_filter_between_two_bins_is_empty() -> None:
    task = make_task(mel_bins=300)  # up to 9 Hz apart, below the 15.6 Hz of a bin
    filters = design_front_end("mfcc", StreamConfig(), task.record, task.graph).filters
    empty = [first for first, weights in filters if len(weights) == 0]
    assert empty == [0] * 21


def test_tables_and_buffers_have_their_sizes() -> None:
    task = make_task()
    mfcc, stream = (design_front_end(kind, StreamConfig(), task.record, task.graph) for kind in ("mfcc", "kws_stream"))
    weights = sum(len(own) for _, own in mfcc.filters)
    assert (mfcc.first_bin, mfcc.bins) == (2, 254)  # 31 Hz to 3,984 Hz
    # Window, complex roots, filters, DCT, offsets; 16 bits for each index and for two numbers of each filter.
    assert mfcc.constant_bytes == 4 * (640 + 2 * 768 + weights + 400 + 10) + 2 * 320 + 4 * 40
    assert mfcc.fast_bytes == 4 * (1024 + 254 + 40)
    assert stream.fast_bytes == mfcc.fast_bytes + 49 * 10 + (3 + 4) * 4  # features, scores and their sums
    assert (mfcc.bulk_bytes, stream.bulk_bytes) == (2 * 16_000, 2 * 16_640)


def test_tables_hold_the_definition() -> None:
    task = make_task()
    front_end = design_front_end("mfcc", StreamConfig(), task.record, task.graph)
    np.testing.assert_allclose(front_end.window[[0, 160, 320]] * 32_768, [0, 0.5, 1], atol=1e-12)
    np.testing.assert_allclose(front_end.roots[[0, 256, 512]], [1, -1j, -1], atol=1e-12)
    assert front_end.reversed_indices[:5].tolist() == [0, 256, 128, 384, 64]
    # Scale 0.0625 and zero point 5; the first coefficient has mean -30 and standard deviation 20.
    assert front_end.offset[0] == pytest.approx(5 + 30 / (20 * 0.0625))
    assert front_end.dct[0, 0] == pytest.approx(40**-0.5 / (20 * 0.0625))
    assert "#define FRONT_END_FFT_LOG2 10\n" in front_end_header(front_end)


def test_log_mel_features_are_the_bins_themselves_with_one_factor_each() -> None:
    task = make_task(coefficients=None)
    log_mel = design_front_end("log_mel", StreamConfig(), task.record, task.graph)
    mfcc = design_front_end("mfcc", StreamConfig(), make_task().record, make_task().graph)
    assert (log_mel.features, mfcc.features) == ("log_mel", "mfcc")
    assert log_mel.coefficients == len(log_mel.filters) == 40
    assert log_mel.dct.shape == (40, 1)
    assert log_mel.dct[0, 0] == pytest.approx(1 / (20 * 0.0625))
    assert log_mel.offset[0] == pytest.approx(5 + 30 / (20 * 0.0625))
    assert mfcc.constant_bytes - log_mel.constant_bytes == 4 * (400 + 10 - 40 - 40)
    assert log_mel.fast_bytes == mfcc.fast_bytes


@pytest.mark.parametrize(("coefficients", "kind", "made"), [(None, "mfcc", "log_mel"), (10, "log_mel", "mfcc")])
def test_features_that_the_network_was_not_trained_with_are_refused(
    coefficients: int | None, kind: Literal["mfcc", "log_mel"], made: str
) -> None:
    task = make_task(coefficients=coefficients)
    with pytest.raises(StageError, match=f"found {kind}, the network takes {made} features; set it to {made}"):
        design_front_end(kind, StreamConfig(), task.record, task.graph)
    assert design_front_end("kws_stream", StreamConfig(), task.record, task.graph).features == made


@pytest.mark.parametrize(
    "changes",
    [
        {"fft_size": 4096},
        {"window_samples": 1024},
        {"hop_samples": 640},
        {"fft_size": 8, "window_samples": 8, "hop_samples": 1},
    ],
)
def test_settings_at_the_limits_are_taken(changes: dict[str, int]) -> None:
    task = make_task(**changes)
    front_end = design_front_end("mfcc", StreamConfig(), task.record, task.graph)
    assert front_end.clip_samples == task.clip_samples


def test_clip_is_one_second_for_49_frames() -> None:
    task = make_task()
    assert (
        design_front_end("mfcc", StreamConfig(), task.record, task.graph).clip_samples == RATE_HZ == task.clip_samples
    )


def test_stream_settings_are_counted_in_hops_and_sums() -> None:
    task = make_task()
    config = StreamConfig(run_every_hops=4, smooth_runs=3, threshold=0.5, refractory_s="500ms")
    stream = design_front_end("kws_stream", config, task.record, task.graph).stream
    assert stream is not None
    assert (stream.run_hops, stream.smooth_runs, stream.refractory_hops) == (4, 3, 25)
    assert stream.threshold_sum == 383  # half of 3 * 255, rounded up
    assert stream.is_word == (True, True, False, False)
    assert "#define STREAM_IS_WORD {1, 1, 0, 0}" in stream_settings(stream)


def test_generated_tables_give_back_the_numbers_they_were_made_from() -> None:
    task = make_task()
    front_end = design_front_end("mfcc", StreamConfig(), task.record, task.graph)
    source = front_end_source(front_end)
    start = source.index("{", source.index("front_end_window["))
    body = source[start + 1 : source.index("}", start)]
    values = [np.float32(word.strip().removesuffix("f")) for word in body.split(",") if word.strip()]
    np.testing.assert_array_equal(values, front_end.window.astype(np.float32))
    assert max(map(len, source.splitlines())) <= 120
    assert "#define FRONT_END_CLIP_SAMPLES 16000u" in front_end_header(front_end)


def without(record: dict, key: str) -> dict:
    return {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fft_size": 1000}, "fft_size 1000, window 640 and hop 320 samples, needed a power of two"),
        ({"fft_size": 512}, "needed a power of two up to 4096, an even window within it"),
        ({"window_samples": 641}, "an even window"),
        ({"hop_samples": 700}, "a hop within the window"),
        ({"hop_samples": 0}, "a hop within the window"),
        ({"fft_size": 8192}, "a power of two up to 4096"),
        ({"fft_size": 4, "window_samples": 4, "hop_samples": 4}, "needed a power of two"),
        ({"coefficients": 13}, r"the network's input is \(1, 49, 10, 1\), needed \(1, frames, 13, 1\)"),
    ],
)
def test_settings_the_device_cannot_follow_are_refused(changes: dict[str, int], message: str) -> None:
    task = make_task()
    record = {**task.record, "features": {**KWS, **changes}}
    if "coefficients" in changes:
        record = {**record, "feature_mean": [0.0] * 13, "feature_std": [1.0] * 13}
    with pytest.raises(StageError, match=message):
        design_front_end("mfcc", StreamConfig(), record, task.graph)


@pytest.mark.parametrize("missing", ["features", "feature_mean", "sample_rate_hz", "classes"])
def test_a_data_set_without_audio_settings_is_refused(missing: str) -> None:
    task = make_task()
    with pytest.raises(StageError, match="has no settings of sounds .* use front_end: none for this data set"):
        design_front_end("mfcc", StreamConfig(), without(task.record, missing), task.graph)


def test_a_stream_wants_a_softmax_over_the_classes() -> None:
    task = make_task()
    with pytest.raises(StageError, match="an output of 4 values .*, needed the SOFTMAX of 3 classes"):
        design_front_end("kws_stream", StreamConfig(), {**task.record, "classes": CLASSES[:3]}, task.graph)
    tensors = list(task.graph.tensors)
    last = task.graph.outputs[0]
    tensors[last] = replace(tensors[last], quantisation=Quantisation((0.5,), (0,)))
    with pytest.raises(StageError, match="with scale 0.5 and zero point 0"):
        design_front_end("kws_stream", StreamConfig(), task.record, replace(task.graph, tensors=tuple(tensors)))


def build(folder: Path, task: Task, kind: str, graph: Graph | None = None) -> dict:
    folder.mkdir()
    model = folder / "model.tflite"
    model.write_bytes(write_tflite(graph or task.graph, "test"))
    config = FirmwareConfig(front_end=kind)
    return read_json(firmware.function(model, task.write(folder), config=config, board=BOARD, out_dir=folder).footprint)


@pytest.mark.slow
def test_memory_is_paid_for_only_what_is_built(tmp_path: Path) -> None:
    task = make_task()
    none, mfcc, stream = (build(tmp_path / kind, task, kind) for kind in ("none", "mfcc", "kws_stream"))
    assert none["front_end"] is None
    assert mfcc["front_end"]["kind"] == "mfcc"
    # The tables, and some 3 KB of code; the samples, and 5 KB of work buffers and longer lines.
    assert 0 < mfcc["flash_bytes"] - none["flash_bytes"] - mfcc["front_end"]["constant_bytes"] < 5000
    assert 0 <= mfcc["ram_bytes"] - none["ram_bytes"] - mfcc["front_end"]["ram_bytes"] < 600
    assert 0 <= stream["ram_bytes"] - none["ram_bytes"] - stream["front_end"]["ram_bytes"] < 900
    assert mfcc["flash_bytes"] < stream["flash_bytes"] < mfcc["flash_bytes"] + 3000
    assert mfcc["regions"]["sram"]["used_bytes"] >= 2 * RATE_HZ
