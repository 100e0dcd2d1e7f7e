"""The tasks of MLPerf Tiny as images, and the stock-like runner driving them in each mode on the twin.

Windows are short: that ten seconds are reached is a matter of the number of inferences, by the twin's own clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boards import load_board
from hil.link.audio import AudioLink
from hil.link.device_link import DeviceLink
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.writer import write_tflite
from stages.tools.mlperf.tasks import Task
from tests.boards.link.stock_runner import StockRunner
from tests.stages.firmware.front_ends import STREAM

BOARD = "nucleo_f767zi"


@dataclass(frozen=True)
class TaskImages:
    """One that tells the time, one that pulses the pin."""

    performance: Firmware
    energy: Firmware


def built(task: Task, graph: Graph, folder: Path, dataset: Path | None = None) -> TaskImages:
    """By the settings that `pipeline mlperf` would give."""
    (folder / "model.tflite").write_bytes(write_tflite(graph, "test"))
    images = []
    for energy in (False, True):
        settings = dict(one.removeprefix("firmware.").split("=") for one in task.settings(energy))
        out = folder / ("energy" if energy else "performance")
        out.mkdir()
        config = FirmwareConfig.model_validate({**settings, "stream": STREAM})
        images.append(firmware.function(folder / "model.tflite", dataset, config=config, board=BOARD, out_dir=out))
    return TaskImages(*images)


def host_errors(graph: Graph, floats: np.ndarray) -> list[str]:
    """The anomaly detector's score in double precision, as printed: of the int8 network's outputs for these inputs."""
    source, result = (graph.tensors[ends[0]] for ends in (graph.inputs, graph.outputs))
    assert source.quantisation and result.quantisation
    steps = floats / np.float32(source.quantisation.scale[0])
    rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps)) + source.quantisation.zero_point[0]
    levels = np.clip(rounded, -128, 127).astype(np.int8).reshape(len(floats), *source.shape[1:])
    outputs = run_tflm(write_tflite(graph, "host"), graph, levels).reshape(len(floats), -1).astype(np.float64)
    values = (outputs - result.quantisation.zero_point[0]) * float(np.float32(result.quantisation.scale[0]))
    return [f"{each:.3f}" for each in np.mean((floats.astype(np.float64) - values) ** 2, axis=1)]


def windows_are_long_enough(runner: StockRunner, files: Sequence[bytes], window_s: float = 0.02) -> None:
    """So many inferences as a first block suggests last so long by the device's own clock; five windows of them."""
    first = runner.performance(files, inferences=20, warmups=1)
    per_inference_s = min(end - start for start, end in first.laps_us) / 20e6
    found = runner.performance(files, inferences=math.ceil(1.02 * window_s / per_inference_s), warmups=1)
    assert len(found.laps_us) == 5 and min(end - start for start, end in found.laps_us) >= 1e6 * window_s
    assert found.error, "the original looks at the host's clock: for it this loop was too short"


def play(link: DeviceLink, samples: np.ndarray, hop_s: float, window_s: float) -> list[float]:
    """What stands in for the interface board: sends the recording and notes when words are found, in seconds."""
    times = []
    for start in range(0, len(samples), 15_360):
        AudioLink(link).load(samples[start : start + 15_360].astype("<i2").tobytes())
        for line in link.command("stream feed", 60.0):
            if found := re.match(r"m-detection-\[(\d+),", line):
                times.append(window_s + (int(found[1]) - 1) * hop_s)
    return times


def clock_hz() -> int:
    return load_board(BOARD).clock_hz
