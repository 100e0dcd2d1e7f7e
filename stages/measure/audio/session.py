"""What a device with a front end is asked beyond the network: its front end on a clip, and a stream if it takes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.stage import Progress
from stages.graph.graph import Graph
from stages.measure.audio.front_end import measure_front_end, trial_clip
from stages.measure.audio.listening import measure_stream
from stages.measure.audio.scene import speak_scene
from stages.measure.seen import AudioSeen
from stages.measure.session import OpenLink


def measure_audio(
    device: OpenLink,
    front_end: Mapping[str, Any],
    dataset: Mapping[str, Any],
    model: Path,
    graph: Graph,
    stream_words: int,
    progress: Progress,
) -> AudioSeen:
    """`front_end` is that part of footprint.json; `stream_words` = 0 leaves the stream out."""
    clip = trial_clip(front_end["clip_samples"], front_end["sample_rate_hz"])
    seen = measure_front_end(device, clip, dataset, graph)
    if front_end["stream"] is None or stream_words == 0:
        return AudioSeen(clip, seen, None)
    scene = speak_scene(dataset["classes"], stream_words)
    stream = measure_stream(device, scene, front_end, model.read_bytes(), graph, progress)
    return AudioSeen(clip, seen, stream)
