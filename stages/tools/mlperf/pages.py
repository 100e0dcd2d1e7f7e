"""log.txt, results.txt and results.json of a mode, worded as MLPerf Tiny's runner words them.

Every page of a twin begins with a line that says so; so does every row of its results.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hil.instruments.energy_run import EnergySeen
from stages.tools.mlperf.host import Heard, Identity, Scored, Window
from stages.tools.mlperf.scoring import auc, top1
from stages.tools.mlperf.tasks import Mode, Task

VIRTUAL = (
    "VIRTUAL: a QEMU twin stood in for the board. Times are executed instructions, energy is a model's."
    " This is no measurement and no submission."
)
HOST = "Host: tinyml-pipeline's own; MLCommons counts results of its own runner only."
FILES = ("log.txt", "results.txt", "results.json")
_RULE = "ulp-mlperf: ---------------------------------------------------------"


@dataclass(frozen=True)
class Page:
    """What one mode leaves behind."""

    mode: Mode
    log: tuple[str, ...]
    results: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    def write(self, folder: Path, identity: Identity) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        head = [VIRTUAL] if identity.is_virtual else []
        told = {
            "mode": self.mode,
            "source": "virtual" if identity.is_virtual else "hardware",
            "device": identity.name,
            "build_id": identity.build_id,
        }
        (folder / "log.txt").write_text("\n".join([*head, HOST, *self.log, *self.results, ""]))
        (folder / "results.txt").write_text("\n".join([*head, *self.results, ""]))
        rows = [{**({"notice": VIRTUAL} if head else {}), **told, **row} for row in self.rows]
        (folder / "results.json").write_text(json.dumps(rows, indent=1) + "\n")


def performance_page(log: Sequence[str], windows: Sequence[Window]) -> Page:
    rows = tuple(
        {
            "file": one.file,
            "class": one.label,
            "infer": {
                "results": one.results,
                "start_time": one.start_us,
                "end_time": one.end_us,
                "elapsed_time": one.end_us - one.start_us,
                "iterations": one.inferences,
                "throughput": one.throughput,
            },
        }
        for one in windows
    )
    return Page("performance", tuple(log), (_RULE, throughput_line(rows), _RULE), rows)


def accuracy_page(task: Task, log: Sequence[str], scored: Sequence[Scored]) -> Page:
    rows = tuple({"file": one.file, "class": one.label, "infer": {"results": one.results}} for one in scored)
    return Page("accuracy", tuple(log), accuracy_lines(task, rows), rows)


def energy_page(log: Sequence[str], seen: EnergySeen, point: str) -> Page:
    rows = tuple(
        {
            "infer": {"iterations": seen.inferences},
            "power": {
                "elapsed_s": window.duration_s,
                "energy_j": energy_j * seen.inferences,
                "instrument": seen.instrument,
                "measurement_point": point,
            },
        }
        for (_, window), energy_j in zip(seen.windows, seen.report.energies_j, strict=True)
    )
    lines = ["Power Edition Output", f"Measurement point: {point}"]
    for number, row in enumerate(rows):
        power: Any = row["power"]
        lines += [
            f"Energy data for trial {number}",
            f"  Elapsed time  : {power['elapsed_s']:.3f}",
            f"  Inferences    : {seen.inferences}",
            f"  Power         : {1e3 * power['energy_j'] / power['elapsed_s']:5.4f} mW.",
            f"  Total Energy  : {1e6 * power['energy_j']:.3f} uJ",
            f"  Energy/Inf    : {1e6 * power['energy_j'] / seen.inferences:.3f} uJ/inf",
        ]
    return Page("energy", tuple(log), (*lines, energy_line(rows)), rows)


def stream_page(mode: Mode, log: Sequence[str], heard: Sequence[Heard]) -> Page:
    rows = tuple(
        {
            "infer": {
                "wav_file": one.file,
                "length_sec": one.seconds,
                "detections": one.times_s,
                "iterations": one.runs,
            },
            "counts": [one.counted.hits, one.counted.misses, one.counted.false_alarms],
            "dutycycle": one.duty_cycle,
            "busy_s": one.busy_s,
        }
        for one in heard
    )
    return Page(mode, tuple(log), stream_lines(rows), rows)


def throughput_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """The figure of a performance run, from its rows."""
    value = median(row["infer"]["iterations"] / (row["infer"]["elapsed_time"] / 1e6) for row in rows)
    return f"ulp-mlperf: Median throughput is {value:>10.3f} inf./sec."


def accuracy_value(task: Task, rows: Sequence[Mapping[str, Any]]) -> float:
    results, labels = [row["infer"]["results"] for row in rows], [int(row["class"]) for row in rows]
    return auc([row[0] for row in results], labels) if task.metric == "auc" else top1(results, labels)


def accuracy_lines(task: Task, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    value = accuracy_value(task, rows)
    figure = f"ulp-mlperf: AUC = {value:.3f}" if task.metric == "auc" else f"ulp-mlperf: Top 1% = {100 * value:2.1f}"
    return (f"ulp-mlperf: {len(rows)} inputs", figure)


def energy_line(rows: Sequence[Mapping[str, Any]]) -> str:
    value = median(row["power"]["energy_j"] / row["infer"]["iterations"] for row in rows)
    return f"Median energy cost is {1e6 * value:5.4f} uJ/inf."


def stream_lines(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    hits, misses, alarms = (sum(row["counts"][index] for row in rows) for index in range(3))
    busy, seconds = (
        sum(values) for values in zip(*((r["busy_s"], r["infer"]["length_sec"]) for r in rows), strict=True)
    )
    runs = sum(row["infer"]["iterations"] for row in rows)
    return (
        f"Accuracy: {hits} True positives, {misses} False negatives, {alarms} False positives",
        f"Average duty cycle: {busy / seconds:.5f}",
        f"Estimated throughput: {runs / busy if busy else 0:.3f} inf./sec.",
    )
