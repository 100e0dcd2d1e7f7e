"""What `pipeline calibrate` does: measure loops and networks on a device, fit, write calibration.yaml."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

import numpy as np
import yaml

from boards import CALIBRATION, load_board
from hil.bench.discovery import find_board
from hil.bench.locks import board_lock
from pipeline.stage import Answer
from stages.tools.bringup.device import AttachedDevice
from stages.tools.bringup.trial_network import trial_inputs
from stages.tools.modelling.calibration import CACHE, CORE, PARAMETERS, Calibrated, Subject, build_subjects, calibrate
from stages.tools.modelling.calibration import described_values as described

_REPEATS = 5


def run(name: str, virtual: bool, out: Path | None, probe_serial: str = "") -> Answer:
    """Fit and write; `out` is a folder of the user's own instead of the board's."""
    board = load_board(name)
    attached = None if virtual else find_board(name, probe_serial=probe_serial)
    with tempfile.TemporaryDirectory(prefix="calibrate-") as folder:
        subjects = build_subjects(board, Path(folder))
        if attached is None:
            now = described(subjects.described)
            fit = subjects.predict(subjects.fit)(now)
            held_out = subjects.predict(subjects.held_out, whole=True)(now)
        else:
            with board_lock(attached.probe_serial, purpose=f"calibration of {name}"):
                device = AttachedDevice(board, attached)
                fit = np.concatenate([_taken(device, one) for one in subjects.fit])
                held_out = np.array([_taken(device, one).sum() for one in subjects.held_out])
        found = calibrate(subjects, fit, held_out)
        names = [one.name for one in subjects.held_out]
    folder_out = board.folder if out is None else out
    record = _record(found, names, "virtual" if virtual else "hardware")
    path = None
    if not virtual or out is not None:  # a twin that stood in must not pass for a board
        folder_out.mkdir(parents=True, exist_ok=True)
        path = folder_out / CALIBRATION
        path.write_text(yaml.safe_dump(record, sort_keys=False))
    return Answer(_text(name, found, names, path), record)


def _taken(device: AttachedDevice, subject: Subject) -> np.ndarray:
    """Cycles of every op: the median of some inferences, each after a first one that warms the caches."""
    with device.running(subject.images) as link:
        if subject.name != "loops":
            link.load(trial_inputs(1)[0].tobytes())
        link.infer(1, 1)
        return np.median([[one.ticks for one in link.layers()] for _ in range(_REPEATS)], axis=0)


def _record(found: Calibrated, names: list[str], device: str) -> dict[str, object]:
    values = dict(zip(PARAMETERS, (round(float(value), 4) for value in found.fit.values), strict=True))
    unsure = dict(zip(PARAMETERS, (round(float(value), 4) for value in found.fit.uncertainty), strict=True))
    return {
        "device": device,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "core": {name: values[name] for name in CORE},
        "cache": {name: values[name] for name in CACHE},
        "uncertainty": unsure,
        "residual": round(found.fit.residual, 5),
        "networks": dict(zip(names, (round(float(error), 5) for error in found.errors), strict=True)),
    }


def _text(name: str, found: Calibrated, networks: list[str], path: Path | None) -> str:
    lines = [
        f"{parameter:24} {value:8.3f} ± {unsure:.3f}"
        for parameter, value, unsure in zip(PARAMETERS, found.fit.values, found.fit.uncertainty, strict=True)
    ]
    lines += [
        f"{network}, not in the fit: predicted {100 * error:+.2f} % off, ± {100 * share:.2f} % stated"
        for network, error, share in zip(networks, found.errors, found.share, strict=True)
    ]
    where = f"written to {path}" if path else "a twin stood in for the board: nothing is written; --out DIR keeps it"
    return "\n".join([f"{name}: residual {100 * found.fit.residual:.2f} %", *lines, where])
