"""What MLPerf Tiny's own runner reads: the devices on the bench, and how often each block infers.

The runner tells devices apart by USB ids alone. A NUCLEO-H743ZI2's probe has those of its interface board: beside such
a board the file lists no interface, and the two cannot be used together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from boards import ENERGY_BAUD, Board
from stages.tools.mlperf.tasks import WINDOWS, Mode, Task

_INTERFACE = ("0483:374e", "stm32h573i-dk", 115_200)
_LPM01A, _JS220 = "0483:5740", "16d0:10ba"
TEST_FILES: Mapping[Mode, str] = {
    "performance": "tests_performance.yaml",
    "accuracy": "tests_accuracy.yaml",
    "energy": "tests_energy.yaml",
}
_ACCURACY_BLOCK = "infer 1 0"


def devices_text(board: Board, baud: int) -> str:
    """devices.yaml: `baud` is that of an image that tells the time."""
    rates = {"energy": ENERGY_BAUD, "performance": baud, "accuracy": baud}
    devices: list[dict[str, object]] = [
        {"name": board.name, "type": "dut", "baud": rates, "usb": _usb(*board.probe.usb_ids)},
        {"name": "js220", "type": "power", "interface": "direct_usb", "preference": 2, "usb": _usb(_JS220)}
        | {"raw_sampling_rate": 1_000_000, "virtual_sampling_rate": 1000},
        {"name": "lpm01a", "type": "power", "baud": 3_686_400, "echo": False, "preference": 1, "voltage": 3.3}
        | {"usb": _usb(_LPM01A)},
    ]
    usb, name, rate = _INTERFACE
    if usb not in board.probe.usb_ids:
        devices.insert(0, {"name": name, "type": "interface", "preference": 1, "baud": rate, "usb": _usb(usb)})
    return yaml.safe_dump(devices, sort_keys=False)


def tests_text(task: Task, mode: Mode, inferences: int, warmups: int) -> str:
    """tests_*.yaml: five blocks of so many inferences, or every input once."""
    if task.stream:
        script: list[object] = ["stream"]
    elif mode == "accuracy":
        script = [{"loop": ["download", _ACCURACY_BLOCK]}]
    else:
        script = [{f"loop {WINDOWS}": ["download", f"infer {inferences} {warmups}"]}]
    truth = "sww_long_test.json" if task.stream else "y_labels.csv"
    entry = {"name": task.benchmark, "model": task.model, "truth_file": truth, "script": script}
    return yaml.safe_dump({task.model: entry}, sort_keys=False)


def write_runner_files(
    folder: Path, board: Board, baud: int, task: Task | None, inferences: int, warmups: int = 1
) -> None:
    """All of them; without a task only the devices."""
    (folder / "devices.yaml").write_text(devices_text(board, baud))
    for mode, name in TEST_FILES.items() if task else ():
        assert task is not None
        (folder / name).write_text(tests_text(task, mode, inferences, warmups))


def _usb(*ids: str) -> dict[int, int | list[int]]:
    """Vendor -> product, or products."""
    found: dict[int, list[int]] = {}
    for pair in ids:
        vendor, product = (int(part, 16) for part in pair.split(":"))
        found.setdefault(vendor, []).append(product)
    return {vendor: products[0] if len(products) == 1 else products for vendor, products in found.items()}
