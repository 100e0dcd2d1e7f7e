"""A stream on the device: a scene goes in, its detections are scored, and its sums are compared with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hil.link.audio import AudioLink, StreamReply
from pipeline.errors import StageError
from pipeline.stage import Progress
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm
from stages.measure.audio.detections import DetectedWord, score_detections
from stages.measure.audio.scene import Scene
from stages.measure.audio.stream_reference import StreamSettings, reference_stream
from stages.measure.seen import StreamSeen
from stages.measure.session import OpenLink

GRACE_S = 1.0  # a word leaves the network's window one second after it ended


def measure_stream(
    device: OpenLink, scene: Scene, front_end: Mapping[str, Any], model: bytes, graph: Graph, progress: Progress
) -> StreamSeen:
    """Feed the scene from its start."""
    progress.start(-(-len(scene.samples) // front_end["clip_samples"]), "chunk")
    replies = AudioLink(device.link).stream(
        scene.samples.tobytes(), 2 * front_end["clip_samples"], trace=True, advance=progress.advance
    )
    return judged(replies, scene, front_end, model, graph, device.where)


def judged(
    replies: Sequence[StreamReply],
    scene: Scene,
    front_end: Mapping[str, Any],
    model: bytes,
    graph: Graph,
    where: str,
) -> StreamSeen:
    """Score of a whole stream; refuses one that is not the reference's for the same features."""
    rate_hz, hop, window = (front_end[name] for name in ("sample_rate_hz", "hop_samples", "window_samples"))
    features = np.frombuffer(b"".join(frame for reply in replies for frame in reply.frames), np.int8)
    settings = StreamSettings(**front_end["stream"])
    expected = reference_stream(
        features.reshape(-1, front_end["coefficients"]),
        front_end["frames"],
        lambda inputs: run_tflm(model, graph, inputs),
        settings,
    )
    sums = [each for reply in replies for each in reply.sums]
    found = [each for reply in replies for each in reply.detections]
    equal = sum(one == other for one, other in zip(sums, expected.sums, strict=False))
    if not equal == len(sums) == len(expected.sums) or tuple(found) != expected.detections:
        raise StageError(
            f"{where}: {equal} of {len(sums)} runs in the stream have the sums of the reference, which has"
            f" {len(expected.sums)}, and {len(found)} words were found, by the reference {len(expected.detections)};"
            " do not use this image"
        )
    detected = [DetectedWord((window + (each.hop - 1) * hop) / rate_hz, each.word) for each in found]
    score = score_detections(scene.spoken, detected, GRACE_S)
    return StreamSeen(len(scene.samples) / rate_hz, len(sums), equal, score)
