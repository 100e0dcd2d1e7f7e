"""What `pipeline calibrate` does: measure loops and networks on a device, fit, write calibration.yaml."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from boards import CALIBRATION, Board, CalibratedPower, PowerPoint, load_board
from hil.bench.bench_file import load_bench, open_instrument
from hil.bench.discovery import AttachedBoard, find_board
from hil.bench.locks import board_lock, instrument_lock
from hil.virtual.profiler import MemoryModel
from pipeline.errors import ConfigError
from pipeline.stage import Answer
from stages.tools.bringup.device import AttachedDevice
from stages.tools.bringup.trial_network import trial_inputs
from stages.tools.modelling.calibration import (
    CACHE,
    CORE,
    PARAMETERS,
    Calibrated,
    Subject,
    build_subjects,
    calibrate,
    described_values,
    priced,
)
from stages.tools.modelling.power import Measure, Rates, fit_power, on_board, power_subjects, simulated

_REPEATS = 5
_OPTION = "m-[option: "


def run(name: str, virtual: bool, out: Path | None, probe_serial: str, bench: Path, with_power: bool | None) -> Answer:
    """Fit and write; `out` is a folder of the user's own instead of the board's.

    `with_power` None: where an instrument is tied to the board; a twin's power only when it is asked for.
    """
    board = load_board(name)
    attached = None if virtual else find_board(name, probe_serial=probe_serial)
    wants_power = _wants_power(attached, bench, with_power)
    with tempfile.TemporaryDirectory(prefix="calibrate-") as folder, ExitStack() as held:
        if attached is not None:
            held.enter_context(board_lock(attached.probe_serial, purpose=f"calibration of {name}"))
        option = "" if attached is None else _option(AttachedDevice(board, attached), board, Path(folder))
        board = board.told([f"{_OPTION}{option}]"])
        subjects = build_subjects(board, Path(folder))
        if attached is None:
            now = described_values(subjects.described)
            fit = subjects.predict(subjects.fit)(now)
            held_out = [one.cycles(subjects.described) for one in subjects.held_out]
        else:
            device = AttachedDevice(board, attached)
            fit = np.concatenate([_taken(device, one) for one in subjects.fit])
            held_out = [_taken(device, one) for one in subjects.held_out]
        found = calibrate(subjects, fit, held_out)
        power = None
        if wants_power:
            model = priced(subjects.described, found.fit.values)
            measure, point = _meter(board, attached, bench, subjects.described, held, Path(folder))
            power = fit_power(power_subjects(subjects), model, board.clock_hz, measure, point)
        names = [one.name for one in subjects.held_out]
    folder_out = board.folder if out is None else out
    record = _record(found, names, "virtual" if virtual else "hardware", option, power)
    path = None
    if not virtual or out is not None:  # a twin that stood in must not pass for a board
        folder_out.mkdir(parents=True, exist_ok=True)
        path = folder_out / CALIBRATION
        path.write_text(yaml.safe_dump(record, sort_keys=False))
    return Answer(_text(name, found, names, power, path), record)


def _wants_power(attached: AttachedBoard | None, bench: Path, asked: bool | None) -> bool:
    if attached is None:
        return bool(asked)
    tied = bench.exists() and load_bench(bench).wiring(attached.probe_serial) is not None
    if asked and not tied:
        raise ConfigError(f"{bench}: ties no instrument to probe {attached.probe_serial}, needed for --power")
    return tied if asked is None else asked


def _meter(
    board: Board, attached: AttachedBoard | None, bench: Path, described: MemoryModel, held: ExitStack, folder: Path
) -> tuple[Measure, PowerPoint]:
    """And where it measures."""
    if attached is None:
        flat = Rates(board.power_active_w, 0.0, board.power_active_w)
        return simulated(flat, described, board.clock_hz), board.power_point
    wired = load_bench(bench)
    wiring = wired.wiring(attached.probe_serial)
    assert wiring is not None, "_wants_power has looked"
    held.enter_context(instrument_lock(wiring.address, timeout_s=0.0, purpose=f"calibration of {board.name}"))
    meter = held.enter_context(open_instrument(wired, attached.probe_serial))
    return on_board(AttachedDevice(board, attached), meter, board, folder), wiring.point


def _option(device: AttachedDevice, board: Board, folder: Path) -> str:
    """What the device says of its option bytes when it starts."""
    from stages.tools.bringup.images import STAGES, build_trial

    images = build_trial(board, folder / "option", STAGES[-1:]).images[STAGES[-1]]
    with device.running(images) as link:
        told = [line for line in link.boot_lines if line.startswith(_OPTION)]
    return told[0].removeprefix(_OPTION).removesuffix("]") if told else ""


def _taken(device: AttachedDevice, subject: Subject) -> np.ndarray:
    """Cycles of every op: the median of some inferences, each after a first one that warms the caches."""
    with device.running(subject.images) as link:
        if subject.name != "loops":
            link.load(trial_inputs(1)[0].tobytes())
        link.infer(1, 1)
        return np.median([[one.ticks for one in link.layers()] for _ in range(_REPEATS)], axis=0)


def _record(
    found: Calibrated, names: Sequence[str], device: str, option: str, power: CalibratedPower | None
) -> dict[str, Any]:
    values = dict(zip(PARAMETERS, (round(float(value), 4) for value in found.fit.values), strict=True))
    unsure = dict(zip(PARAMETERS, (round(float(value), 4) for value in found.fit.uncertainty), strict=True))
    return {
        "device": device,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "option": option,
        "core": {name: values[name] for name in CORE},
        "cache": {name: values[name] for name in CACHE},
        "uncertainty": unsure,
        "residual": round(found.fit.residual, 5),
        "networks": dict(zip(names, (round(float(error), 5) for error in found.errors), strict=True)),
        "kernels": {name: one.model_dump() for name, one in found.by_kernel().items()},
        "areas": {name: one.model_dump() for name, one in found.by_area().items()},
        "power": None if power is None else power.model_dump(),
    }


def _text(
    name: str, found: Calibrated, networks: Sequence[str], power: CalibratedPower | None, path: Path | None
) -> str:
    lines = [f"{name}: residual of the fit {100 * found.fit.residual:.2f} %"]
    lines += [
        f"{parameter:24} {value:8.3f} ± {unsure:.3f}"
        for parameter, value, unsure in zip(PARAMETERS, found.fit.values, found.fit.uncertainty, strict=True)
    ]
    lines += [
        f"{network}, not in the fit: predicted {100 * error:+.2f} % off, ± {100 * share:.2f} % stated"
        for network, error, share in zip(networks, found.errors, found.share, strict=True)
    ]
    lines += [
        f"kernel {kernel}, not in the fit: model / board {one.low:.3f} to {one.high:.3f}, n {one.n}"
        for kernel, one in found.by_kernel().items()
    ]
    if power is not None:
        lines += [
            f"{rate:24} {getattr(power, rate):8.4f} ± {power.uncertainty[rate]:.4f} W" for rate in power.uncertainty
        ]
        spread = f"{power.networks.low:.3f} to {power.networks.high:.3f}, n {power.networks.n}"
        lines.append(f"energy of networks that are not in the fit: model / board {spread} ({power.instrument})")
    where = f"written to {path}" if path else "a twin stood in for the board: nothing is written; --out DIR keeps it"
    return "\n".join([*lines, where])
