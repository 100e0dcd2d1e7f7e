"""Audio to a device with a front end: features, words, and a stream of any length with its detections.

A line of base64 carries 180 bytes; a device that a debug probe can reach (the twin) gets its samples at once. Both are
checked by CRC-32. A stream is in the time of its samples: it may run slower than the sound it stands for.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hil.link import replies
from hil.link.device_link import ATTEMPTS, DeviceLink
from hil.link.replies import DeviceRestarted, GarbledReply, single
from pipeline.errors import DeviceFault, LinkTimeout

BYTES_PER_LINE = 180  # 'audio ' + 240 characters + '%' stay within the device's 250


@dataclass(frozen=True)
class Heard:
    """What the device takes a clip for."""

    word: int  # class index
    results: tuple[float, ...]


@dataclass(frozen=True)
class Detection:
    """A word found in a stream, after `hop` hops."""

    hop: int
    word: int
    score_sum: int  # of the last runs' outputs, each 0 to 255


@dataclass(frozen=True)
class StreamReply:
    """What one feed of a stream gave; frames and sums only when traced."""

    hops: int  # heard since the start
    words: int  # detected since the start
    detections: tuple[Detection, ...]
    frames: tuple[bytes, ...] = ()  # features of each hop, int8
    sums: tuple[tuple[int, ...], ...] = ()  # hop, then the sum of each class, for every run of the network


class AudioLink:
    """The commands of a firmware with a front end, over a link in sync."""

    def __init__(self, link: DeviceLink) -> None:
        self._link = link

    def load(self, samples: bytes) -> None:
        """Send little-endian int16 samples, at most as many as the device's clip has."""

        def send() -> None:
            self._link.send_pieces(
                "audio", "audio_buffer", samples, BYTES_PER_LINE, lambda part: base64.b64encode(part).decode("ascii")
            )

        self._link.load_checked(samples, send, "audio crc")

    def features(self, samples: bytes) -> bytes:
        """The network's int8 input for a clip."""
        self.load(samples)
        return self._link.query_twice("features", lambda lines: replies.hex_lines(lines, "m-features-"), self._limit_s)

    def listen(self, samples: bytes) -> Heard:
        """The word in a clip."""
        self.load(samples)
        return self._link.query_twice("listen", heard, self._limit_s)

    def stream(
        self,
        samples: bytes,
        chunk_bytes: int,
        *,
        trace: bool = False,
        advance: Callable[[], None] = lambda: None,
    ) -> tuple[StreamReply, ...]:
        """A whole stream from its start, chunk by chunk; `advance` hears of each.

        The device keeps what is left of a hop for the next chunk. A stream has a memory: when a reply is lost or the
        device restarts, all of it is repeated.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                replies.nothing(self._link.command("stream start"))
                fed = [StreamReply(0, 0, ())]
                for start in range(0, len(samples), chunk_bytes):
                    fed.append(self._feed(samples[start : start + chunk_bytes], trace))
                    _refuse_gaps(fed[-2], fed[-1], trace)
                    advance()
                return tuple(fed[1:])
            except (LinkTimeout, GarbledReply, DeviceRestarted) as error:
                if attempt == ATTEMPTS:
                    raise DeviceFault(f"{error} (the stream was begun {ATTEMPTS} times)") from error
                self._link.retries += 1
                self._link.sync()
        raise AssertionError("unreachable")

    def wake_word_run(
        self, samples: bytes, chunk_bytes: int, advance: Callable[[], None] = lambda: None
    ) -> tuple[tuple[Detection, ...], int]:
        """MLPerf Tiny's streaming run, `start` to `stop`: what was found, and how many ticks hearing took.

        Asked once: what is measured cannot be repeated piece by piece.
        """
        self._link.command("stop")
        self._link.command("start")
        found: list[Detection] = []
        for start in range(0, len(samples), chunk_bytes):
            found += self._feed(samples[start : start + chunk_bytes], False).detections
            advance()
        lines = [line for line in self._link.command_checked("stop") if not line.startswith("m-lap-us-")]
        words = int(single(lines[:1], r"m-heard-\[[0-9]+,([0-9]+)\]")[1])
        if words != len(found):
            raise GarbledReply(f"found {len(found)} detections, the device counted {words}: a line is missing")
        return tuple(found), int(single(lines[1:], r"m-busy-\[([0-9]+)\]")[1])

    def _feed(self, chunk: bytes, trace: bool) -> StreamReply:
        self.load(chunk)
        return stream_reply(self._link.command_checked("stream trace" if trace else "stream feed", self._limit_s))

    @property
    def _limit_s(self) -> float:
        return self._link.limits.infer_s


def heard(lines: Sequence[str]) -> Heard:
    """The reply to `listen`."""
    return Heard(int(single(lines[:1], r"m-word-\[([0-9]+)\]")[1]), replies.results(lines[1:]))


def stream_reply(lines: Sequence[str]) -> StreamReply:
    """The reply to `stream feed` or `stream trace`."""
    ending = single(lines[-1:], r"m-heard-\[([0-9]+),([0-9]+)\]")
    detections, frames, sums = [], [], []
    for line in lines[:-1]:
        if detection := re.fullmatch(r"m-detection-\[([0-9]+),([0-9]+),([0-9]+)\]", line):
            detections.append(Detection(*(int(number) for number in detection.groups())))
        elif frame := re.fullmatch(r"m-frame-\[[0-9]+,((?:[0-9a-f]{2})+)\]", line):
            frames.append(bytes.fromhex(frame[1]))
        else:
            found = single((line,), r"m-sums-\[([0-9]+(?:,[0-9]+)+)\]")
            sums.append(tuple(int(number) for number in found[1].split(",")))
    return StreamReply(int(ending[1]), int(ending[2]), tuple(detections), tuple(frames), tuple(sums))


def _refuse_gaps(before: StreamReply, reply: StreamReply, trace: bool) -> None:
    """A line that was lost whole shows in the device's own counts."""
    frames = reply.hops - before.hops if trace else 0
    if reply.words - before.words != len(reply.detections) or len(reply.frames) != frames:
        raise GarbledReply(
            f"found {len(reply.detections)} detections and {len(reply.frames)} frames, needed"
            f" {reply.words - before.words} and {frames}: a line is missing or doubled"
        )
