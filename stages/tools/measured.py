"""What `pipeline measure MODEL.tflite` prints, and keeps: one network on one board."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from boards import load_board
from pipeline.stage import Answer, read_json
from stages.tools.mlperf.runner_files import write_runner_files
from stages.tools.mlperf.tasks import LEAST_WINDOW_S, task_of_model

_IMAGES = ("firmware.elf", "firmware.bin", "firmware.hex", "twin.elf", "footprint.json")


def measured(folders: Mapping[str, Path]) -> Answer:
    """From the folders of the steps firmware and measure."""
    device = read_json(folders["measure"] / "device.json")
    footprint = read_json(folders["firmware"] / "footprint.json")
    with (folders["measure"] / "samples.csv").open() as stream:
        samples = list(csv.DictReader(stream))
    record = {
        "board": device["board"],
        "source": device["source"],
        "n": len(samples),
        "instructions": device["instructions"],
        "cycles_modelled": device["cycles_modelled"],
        "cycles_zero_wait": device["cycles_zero_wait"],
        "latency_ms_modelled": device["latency_ms_modelled"],
        "macs": device["macs"],
        "macs_executed": device["macs_executed"],
        "arena_bytes": footprint["arena_bytes"],
        "flash_bytes": footprint["flash_bytes"],
        "ram_bytes": footprint["ram_bytes"],
    }
    latencies = [float(sample["latency_ms"]) for sample in samples if sample["latency_ms"]]
    if latencies:
        record["latency_ms"] = sum(latencies) / len(latencies)
    tested = read_json(folders["measure"] / "accuracy_device.json")
    if tested["n"]:
        record |= {"accuracy_n": tested["n"], "accuracy_device": tested["accuracy_device"]}
        record |= {"accuracy_host": tested["accuracy_host"], "differences": tested["differences"]}
    energy = device["energy"]
    if energy["source"] is not None:
        record["energy_mj" if energy["source"] == "measured" else "energy_mj_simulated"] = energy["energy_mj"]
    width = max(map(len, record))
    lines = [f"{key:<{width}}  {_shown(value)}" for key, value in record.items()]
    checked = f"{device['golden_outputs_equal']} outputs are bit-identical to TensorFlow Lite Micro's"
    return Answer("\n".join([*lines, checked]), record)


def keep(folders: Mapping[str, Path], out: Path) -> None:
    """What was measured, the images that it was measured with, and what MLPerf Tiny's runner needs to drive them."""
    for file in sorted(path for path in folders["measure"].rglob("*") if path.is_file() and path.name != "entry.json"):
        shutil.copyfile(file, out / file.name)
    for name in _IMAGES:
        shutil.copyfile(folders["firmware"] / name, out / name)
    device = read_json(folders["measure"] / "device.json")
    link = read_json(folders["firmware"] / "footprint.json")["link"]
    seconds = (device["latency_ms_modelled"] or 1.0) / 1e3
    inferences = math.ceil(1.1 * LEAST_WINDOW_S / seconds)
    write_runner_files(out, load_board(device["board"]), link["baud"], task_of_model(link["model_name"]), inferences)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"{len(value)} inputs whose outputs differ from the host's"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if isinstance(value, float) else str(value)
