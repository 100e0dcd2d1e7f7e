"""The tasks of MLPerf Tiny: what their runner sends, what it wants back, and what a result must reach.

Names and numbers: mlcommons/tiny, benchmark/runner (2025) and the rules of v1.3: quality targets of closed division,
windows of ten seconds and five of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.errors import ConfigError

LEAST_WINDOW_S = 10.0
WINDOWS = 5
FAST_BAUD = 921_600
Mode = Literal["performance", "accuracy", "energy"]
MODES: tuple[Mode, ...] = ("performance", "accuracy", "energy")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One of them."""

    code: str  # as on the command line
    model: str  # what the device answers to `profile`
    benchmark: str  # folder of code/
    folder: str  # of results/
    input: Literal["int8", "uint8", "float32"]
    metric: Literal["top1", "auc", "detections"]
    target: float  # least metric; of detections: the most misses, and the most false alarms
    fast_link: bool = False  # 921,600 baud from the start, but for energy
    stream: bool = False

    def settings(self, energy: bool) -> tuple[str, ...]:
        """Of the firmware, as the command line writes them."""
        found = [f"firmware.model_name={self.model}", f"firmware.mode={'energy' if energy else 'performance'}"]
        if self.stream:
            return (*found, "firmware.front_end=kws_stream")
        found.append(f"firmware.input={self.input}")
        found += ["firmware.answer=reconstruction_error"] if self.metric == "auc" else []
        found += [f"firmware.baud={FAST_BAUD}"] if self.fast_link else []
        return tuple(found)


_KWS = Task(
    code="KWS", model="kws01", benchmark="keyword_spotting", folder="kws", input="int8", metric="top1", target=0.90
)
_IC = Task(
    code="IC", model="ic01", benchmark="image_classification", folder="ic", input="uint8", metric="top1", target=0.85
)
_VWW = Task(
    code="VWW", model="vww01", benchmark="person_detection", folder="vww", input="uint8", metric="top1", target=0.80
)
_AD = Task(
    code="AD",
    model="ad01",
    benchmark="anomaly_detection",
    folder="ad",
    input="float32",
    metric="auc",
    target=0.85,
    fast_link=True,
)
_SWW = Task(
    code="SWW",
    model="sww01",
    benchmark="streaming_wakeword",
    folder="sww",
    input="int8",
    metric="detections",
    target=8,
    stream=True,
)
TASKS = {task.code: task for task in (_KWS, _IC, _VWW, _AD, _SWW)}


def task_named(name: str) -> Task:
    """By its code, in any case, or its model's name."""
    wanted = name.upper()
    for task in TASKS.values():
        if wanted in (task.code, task.model.upper()):
            return task
    raise ConfigError(f"mlperf: unknown task {name!r}, known are {', '.join(TASKS)}")


def task_of_model(model_name: str) -> Task | None:
    return next((task for task in TASKS.values() if task.model == model_name), None)
