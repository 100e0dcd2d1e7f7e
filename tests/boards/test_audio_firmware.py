"""The front end in C on a host build under sanitizers: its features, its commands, its streams."""

from __future__ import annotations

import base64
import random
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hil.link.audio import StreamReply, stream_reply
from stages.firmware.front_end import design_front_end
from stages.firmware.front_end_source import front_end_header, front_end_source
from stages.graph.arithmetic.int8_reference import run_graph
from stages.measure.audio.stream_reference import StreamSettings, reference_stream
from tests.boards.conftest import FIRMWARE, HOST_FLAGS, build_host_firmware
from tests.boards.link.test_protocol import READY, Session
from tests.stages.firmware.front_ends import STREAM, Task, clips_of_every_kind, make_task, stream_front_end

LINE_BYTES = 180
CLIP_BYTES = 32_000


@pytest.fixture(scope="module")
def task(audio_task: Task) -> Task:
    return audio_task


@pytest.fixture(scope="module")
def session(audio_host_firmware: Path) -> Session:
    return Session(audio_host_firmware)


def load(samples: np.ndarray | bytes) -> list[str]:
    data = samples if isinstance(samples, bytes) else samples.tobytes()
    pieces = [data[start : start + LINE_BYTES] for start in range(0, len(data), LINE_BYTES)]
    return [f"audio load {len(data)}", *(f"audio {base64.b64encode(piece).decode()}" for piece in pieces)]


def _from_hex(reply: bytes, head: bytes) -> bytes:
    return bytes.fromhex("".join(line.removeprefix(head)[:-1].decode() for line in reply.split(b"\r\n")[:-1]))


MFCC_PROGRAM = """
#include <stdio.h>
#include "audio/mfcc.h"

int main(void)
{
    static int16_t samples[FRONT_END_CLIP_SAMPLES];
    static int8_t features[FRONT_END_FRAMES * FRONT_END_COEFFICIENTS];
    while (fread(samples, sizeof samples, 1, stdin) == 1) {
        mfcc_clip(samples, features);
        fwrite(features, sizeof features, 1, stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize(
    ("frames", "changes"),
    [
        (49, {}),
        (20, {"fft_size": 512, "window_samples": 400, "hop_samples": 160, "mel_bins": 23, "coefficients": 13}),
        (12, {"fft_size": 2048, "window_samples": 2048, "hop_samples": 512, "high_hz": 8000, "low_hz": 60}),
        (30, {"fft_size": 64, "window_samples": 64, "hop_samples": 64, "mel_bins": 10, "coefficients": 4}),
        (49, {"coefficients": None, "high_hz": 7600}),
    ],
    ids=["kws", "odd_log2", "long", "short", "log_mel"],
)
def test_features_are_those_of_the_host(frames: int, changes: dict[str, int | None], tmp_path: Path) -> None:
    task = make_task(frames, **changes)
    kind = "log_mel" if task.record["features"]["coefficients"] is None else "mfcc"
    front_end = design_front_end(kind, STREAM, task.record, task.graph)
    (tmp_path / "front_end.h").write_text(front_end_header(front_end))
    (tmp_path / "front_end.c").write_text(front_end_source(front_end))
    (tmp_path / "main.c").write_text(MFCC_PROGRAM)
    sources = [
        tmp_path / "main.c",
        tmp_path / "front_end.c",
        *(FIRMWARE / "audio" / f"{n}.c" for n in ("mfcc", "spectrum")),
    ]
    subprocess.run([*HOST_FLAGS, f"-I{tmp_path}", *map(str, sources), "-o", str(tmp_path / "mfcc")], check=True)
    clips = clips_of_every_kind(task.clip_samples, each=20)
    done = subprocess.run([tmp_path / "mfcc"], input=clips.tobytes(), capture_output=True, check=True, timeout=60)
    found = np.frombuffer(done.stdout, np.int8).reshape(len(clips), -1).astype(int)
    gaps = np.abs(found - task.host_features(clips).reshape(len(clips), -1))
    assert np.mean(gaps <= 1) >= 0.999
    assert np.mean(gaps == 0) >= 0.99
    assert len(np.unique(found)) > 100, "features that are all alike would agree whatever the front end does"


def test_listen_is_the_network_on_the_features(session: Session, task: Task) -> None:
    clip = clips_of_every_kind(16000)[5]
    replies = session.replies(*load(clip), "features", "listen", "output", "results")
    features = np.frombuffer(_from_hex(replies[-4], b"m-features-["), np.int8)
    expected = run_graph(task.graph, features.reshape(1, 49, 10, 1))[task.graph.outputs[0]].reshape(-1)
    assert _from_hex(replies[-2], b"m-output-[") == expected.tobytes()
    assert replies[-3].split(b"\r\n")[0] == b"m-word-[%d]" % int(np.argmax(expected))
    assert replies[-3].split(b"\r\n", 1)[1] == replies[-1]


def test_an_inference_on_features_stays_what_it_is_without_audio(session: Session, task: Task) -> None:
    clip = clips_of_every_kind(16000)[2]
    data = np.random.default_rng(3).integers(-128, 128, (1, 49, 10, 1), dtype=np.int8)
    expected = run_graph(task.graph, data)[task.graph.outputs[0]]
    pieces = [data.tobytes()[start : start + 31].hex() for start in range(0, 490, 31)]
    commands = [*load(clip), "db load 490", *(f"db {piece}" for piece in pieces), "listen", "infer 1 0", "output"]
    assert _from_hex(session.reply(*commands), b"m-output-[") == expected.tobytes()
    assert _from_hex(session.reply(*commands[:-2], "layers", "output"), b"m-output-[") == expected.tobytes()


def test_layers_begins_with_the_front_end(session: Session, task: Task) -> None:
    # The test's clock moves a millisecond at each look: the lap's is the only one between the front end's mark and the
    # first operator's.
    lines = session.reply("layers").split(b"\r\n")[:-1]
    assert lines[0] == b"m-layer-[front_end,216000]"
    assert lines[1:] == [b"m-layer-[%d,0]" % index for index in range(len(task.graph.ops))]


def test_audio_crc_is_that_of_zlib(session: Session) -> None:
    data = random.Random(3).randbytes(1001)
    replies = session.replies("audio crc", *load(data), "audio crc")
    assert replies[0] == b"m-crc-[00000000]\r\n"
    assert replies[1] == b"m-[Expecting 1001 bytes]\r\n"
    assert replies[-2:] == [b"m-load-done\r\n", b"m-crc-[%08x]\r\n" % zlib.crc32(data)]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("audio", b"e-[audio needs load, place, crc or base64]\r\n"),
        ("audio load", b"e-[Number of bytes needed, above 0]\r\n"),
        ("audio load 0", b"e-[Number of bytes needed, above 0]\r\n"),
        ("audio load -1", b"e-[Number of bytes needed, above 0]\r\n"),
        ("audio load 32001", b"e-[Load of 32001 bytes refused: the input has 32000]\r\n"),
        ("audio load 999999999", b"e-[Load of 999999999 bytes refused: the input has 32000]\r\n"),
        ("audio place 32001", b"e-[Load of 32001 bytes refused: the input has 32000]\r\n"),
        ("audio place", b"e-[Number of bytes needed, above 0]\r\n"),
        ("audio place 32000", b"m-load-done\r\n"),
        ("audio AAAA", b"e-[No load under way: send load first]\r\n"),
        ("audio AAA", b"e-[Not base64]\r\n"),
        ("audio AA=A", b"e-[Not base64]\r\n"),
        ("audio =AAA", b"e-[Not base64]\r\n"),
        ("audio A===", b"e-[Not base64]\r\n"),
        ("audio ====", b"e-[Not base64]\r\n"),
        ("audio AA==AAAA", b"e-[Not base64]\r\n"),
        ("audio AB==", b"e-[Not base64]\r\n"),
        ("audio AA-_", b"e-[Not base64]\r\n"),
        ("audio crc now", b"e-[Unexpected argument: now]\r\n"),
        ("audio AAAA AAAA", b"e-[Unexpected argument: AAAA]\r\n"),
        ("audio load 4 4", b"e-[Unexpected argument: 4]\r\n"),
        ("features now", b"e-[Unexpected argument: now]\r\n"),
        ("stream", b"e-[stream needs start, feed or trace]\r\n"),
        ("stream stop", b"e-[stream needs start, feed or trace]\r\n"),
        ("stream start now", b"e-[Unexpected argument: now]\r\n"),
        ("stream start", b""),
        ("stream feed", b"m-heard-[0,0]\r\n"),
    ],
)
def test_command_gets_its_reply(command: str, reply: bytes, session: Session) -> None:
    assert session.reply(command) == reply


@pytest.mark.parametrize("length", range(8))
def test_base64_of_every_length_comes_out_whole(length: int, session: Session) -> None:
    data = bytes([0xFB, 0xFF, 0x3E, 0x00, 0x7F, 0x80, 0x01])[:length]
    text = base64.b64encode(data).decode()
    replies = session.replies("audio load 9", f"audio {text}" if text else "audio crc", "audio crc")
    assert replies[-1] == b"m-crc-[%08x]\r\n" % zlib.crc32(data)


def test_audio_beyond_the_announced_bytes_is_disregarded(session: Session) -> None:
    replies = session.replies("audio load 4", "audio AQID", "audio BAUG", "audio crc", "audio BA==")
    assert replies[2] == b"m-load-done\r\n"
    assert replies[3] == b"m-crc-[%08x]\r\n" % zlib.crc32(b"\1\2\3\4")
    assert replies[4] == b"e-[No load under way: send load first]\r\n"


def test_audio_that_was_loaded_before_is_forgotten(session: Session, task: Task) -> None:
    silent, loud = np.zeros(16000, "<i2"), clips_of_every_kind(16000)[0]
    commands = [*load(silent), "features", *load(loud), *load(silent[:4]), "features"]
    replies = session.replies(*commands)
    assert replies[len(load(silent))] == replies[-1]


def test_only_audio_may_be_longer_than_80_characters(session: Session) -> None:
    assert session.replies("x" * 80, "x" * 81, "db " + "0" * 78, "audio " + "A" * 244, "audio " + "A" * 245) == [
        b"e-[Unknown command: " + b"x" * 80 + b"]\r\n",
        *[b"e-[Command longer than 80 characters]\r\n"] * 2,
        b"e-[No load under way: send load first]\r\n",
        b"e-[Command longer than 250 characters]\r\n",
    ]


def streamed(session: Session, samples: np.ndarray, chunk: int) -> list[StreamReply]:
    commands = ["stream start"]
    for start in range(0, len(samples), chunk):
        commands += [*load(samples[start : start + chunk]), "stream trace"]
    replies = [reply for reply in session.replies(*commands) if b"m-heard-" in reply]
    return [stream_reply(reply.decode().split("\r\n")[:-1]) for reply in replies]


def joined(replies: Sequence[StreamReply]) -> tuple[bytes, list[tuple[int, ...]], list[object]]:
    frames = b"".join(frame for reply in replies for frame in reply.frames)
    return (
        frames,
        [each for reply in replies for each in reply.sums],
        [d for reply in replies for d in reply.detections],
    )


@pytest.fixture(scope="module")
def minute() -> np.ndarray:
    """Six seconds here; the twin gets a minute."""
    clips = clips_of_every_kind(16000, seed=4, each=3)
    return np.concatenate(clips[[0, 2, 4, 5, 8, 3]])


def test_a_stream_gives_the_sums_and_detections_of_the_reference(
    session: Session, task: Task, minute: np.ndarray
) -> None:
    frames, sums, detections = joined(streamed(session, minute, 16000))
    features = np.frombuffer(frames, np.int8).reshape(-1, 10)
    assert len(features) == 1 + (len(minute) - 640) // 320
    stream = stream_front_end(task).stream
    assert stream is not None
    settings = StreamSettings(**vars(stream))
    expected = reference_stream(
        features,
        49,
        lambda inputs: np.stack([run_graph(task.graph, x[np.newaxis])[task.graph.outputs[0]] for x in inputs]),
        settings,
    )
    assert sums == list(expected.sums)
    assert detections == list(expected.detections)
    assert 2 <= len(detections) < len(sums), "a stream without detections proves nothing about them"


def test_frames_of_a_stream_are_those_of_the_whole_recording(session: Session, task: Task, minute: np.ndarray) -> None:
    frames, _, _ = joined(streamed(session, minute, 16000))
    whole = task.host_features(minute[np.newaxis])[0]
    gaps = np.abs(np.frombuffer(frames, np.int8).astype(int) - whole.reshape(-1))
    assert np.mean(gaps <= 1) >= 0.999


def test_a_stream_of_log_mel_features_gives_the_frames_of_the_whole_recording(
    minute: np.ndarray, tmp_path: Path
) -> None:
    task, part = make_task(coefficients=None), minute[:40_000]
    front_end = stream_front_end(task)
    frames, sums, _ = joined(streamed(Session(build_host_firmware(task.graph, tmp_path, front_end)), part, 16000))
    found = np.frombuffer(frames, np.int8).reshape(-1, 40)
    gaps = np.abs(found.astype(int) - task.host_features(part[np.newaxis])[0])
    assert np.mean(gaps <= 1) >= 0.999
    assert front_end.stream is not None
    expected = reference_stream(
        found,
        49,
        lambda inputs: np.stack([run_graph(task.graph, x[np.newaxis])[task.graph.outputs[0]] for x in inputs]),
        StreamSettings(**vars(front_end.stream)),
    )
    assert sums == list(expected.sums)
    assert len(sums) > 10


@pytest.mark.parametrize("chunk", [1, 319, 640, 1000, 15999])
def test_a_stream_is_the_same_in_pieces_of_any_length(chunk: int, session: Session, minute: np.ndarray) -> None:
    part = minute[: 1200 if chunk == 1 else 40_000]
    assert joined(streamed(session, part, chunk)) == joined(streamed(session, part, 16000))


def test_a_new_start_forgets_what_was_heard(session: Session, minute: np.ndarray) -> None:
    once = session.replies("stream start", *load(minute[:16000]), "stream trace")[-1]
    again = session.replies(
        *load(minute[16000:32000]), "stream feed", *load(minute[:16000]), "stream start", "stream trace"
    )
    assert again[-1] == once
    assert once.count(b"m-frame-") == 49
    assert session.raw(b"stream trace%").endswith(b"m-heard-[0,0]\r\n" + READY)


def test_a_firmware_without_a_front_end_knows_no_audio(host_firmware: Path) -> None:
    replies = Session(host_firmware).replies("audio crc", "features", "listen", "stream start", "audio " + "A" * 240)
    assert [reply.split(b"]")[0] for reply in replies] == [
        *(b"e-[Unknown command: " + name for name in (b"audio", b"features", b"listen", b"stream")),
        b"e-[Command longer than 80 characters",
    ]
