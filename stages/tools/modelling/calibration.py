"""What a device takes for loops and networks -> the parameters of its cycle model, and how well they predict others.

The twin counts what the loops and the operators of trial networks execute; any parameters price these counts. What the
device took for the same code then tells the parameters (`fit.py`). Networks that are no part of the fit say how good
they are. Without a device the twin with its described parameters stands in, which proves the path, not a board.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from boards import Board
from hil.virtual.cortex_m7 import CycleModel
from hil.virtual.instruction import CoreParameters, Decoder
from hil.virtual.profiler import MemoryModel, OpCounts, build_plugin, count_ops, host_compiler
from hil.virtual.program import read_program
from pipeline.errors import ToolError
from stages.firmware.build.image import Images, build_images, write_sources
from stages.firmware.memory.regions import place
from stages.firmware.model_source import compile_model
from stages.graph.simplify.simplification import simplify
from stages.measure.modelled import memory_model
from stages.tools.bringup.trial_network import trial_inputs, trial_network
from stages.tools.modelling.fit import Fitted, fitted, prediction_share
from stages.tools.modelling.loop_source import write_loops
from stages.tools.modelling.loops import loops

CORE = tuple(field.name for field in fields(CoreParameters))
CACHE = ("flash_fill_cycles", "ram_load_fill_cycles", "ram_store_fill_cycles", "write_back_cycles")
PARAMETERS = (*CORE, *CACHE)
_IN_FIT = {"trial_8": (3, 8), "trial_24": (4, 24)}  # name -> seed, channels
_HELD_OUT = {"trial_12": (5, 12), "trial_16": (6, 16), "trial_32": (7, 32)}


@dataclass(frozen=True)
class Subject:
    """One image: its counts on the twin, and the decoder of its code."""

    name: str
    images: Images
    counts: Sequence[OpCounts]
    decoder: Decoder
    issued: dict[CoreParameters, list[int]] = field(default_factory=dict)  # zero-wait cycles, as computed before

    def cycles(self, model: MemoryModel) -> np.ndarray:
        """Of every op, at the parameters of `model`."""
        if model.core not in self.issued:
            core = CycleModel(self.decoder.adjusted(model.core))
            self.issued[model.core] = [core.cycles(one.edges) for one in self.counts]
        lines = [one.traffic.cycles(model) for one in self.counts]
        return np.array(self.issued[model.core], float) + np.array(lines, float)


@dataclass(frozen=True)
class Subjects:
    """What is fitted, and the networks that are not."""

    fit: tuple[Subject, ...]
    held_out: tuple[Subject, ...]
    described: MemoryModel

    def predict(self, which: Sequence[Subject], whole: bool = False) -> Callable[[np.ndarray], np.ndarray]:
        """Cycles of every op (or of each whole network) as a function of the parameters."""

        def cycles(values: np.ndarray) -> np.ndarray:
            model = priced(self.described, values)
            found = [one.cycles(model) for one in which]
            return np.array([part.sum() for part in found]) if whole else np.concatenate(found)

        return cycles


def priced(model: MemoryModel, values: np.ndarray) -> MemoryModel:
    given = dict(zip(PARAMETERS, (float(value) for value in values), strict=True))
    core = CoreParameters(**{name: given[name] for name in CORE})
    return replace(model, core=core, **{name: given[name] for name in CACHE})


def described_values(model: MemoryModel) -> np.ndarray:
    return np.array([*(getattr(model.core, name) for name in CORE), *(getattr(model, name) for name in CACHE)], float)


def build_subjects(board: Board, folder: Path) -> Subjects:
    """Compile loops and networks and count them on the twin."""
    compiler = host_compiler()
    if compiler is None:
        raise ToolError("calibrate: no C compiler, needed to build the profiler; apt-get install gcc libc6-dev")
    with tempfile.TemporaryDirectory(prefix="profiler-plugin-") as scratch:
        plugin = build_plugin(Path(scratch), compiler)
        write_loops(loops(), folder / "loops" / "generated")
        first = _subject("loops", board, folder / "loops", plugin, None)
        others = [_network(name, board, folder / name, plugin) for name in (*_IN_FIT, *_HELD_OUT)]
    model = memory_model(board, read_program(first.images.twin))
    return Subjects((first, *others[: len(_IN_FIT)]), tuple(others[len(_IN_FIT) :]), model)


def _network(name: str, board: Board, folder: Path, plugin: Path) -> Subject:
    seed, channels = {**_IN_FIT, **_HELD_OUT}[name]
    compiled = compile_model(simplify(trial_network(seed, channels)))
    write_sources(compiled, name, place(compiled, board, None, copy_weights=False), folder / "generated")
    return _subject(name, board, folder, plugin, trial_inputs(1)[0].tobytes())


def _subject(name: str, board: Board, folder: Path, plugin: Path, data: bytes | None) -> Subject:
    images = build_images(board, folder / "generated", "O2", folder)
    program = read_program(images.twin)
    counts = count_ops(images.twin, data, memory_model(board, program), plugin)
    return Subject(name, images, counts, Decoder(program))


@dataclass(frozen=True)
class Calibrated:
    """Fit, and for each network that was not in it: what was predicted, what it may be off (2 sigma), what it took."""

    fit: Fitted
    predicted: np.ndarray
    share: np.ndarray
    taken: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        return self.predicted / self.taken - 1


def calibrate(subjects: Subjects, fit_cycles: np.ndarray, held_out_cycles: np.ndarray) -> Calibrated:
    """From what the device took for every op of `subjects.fit` and for each whole network of `held_out`."""
    start = described_values(subjects.described)
    found = fitted(subjects.predict(subjects.fit), fit_cycles, start)
    predicted, share = prediction_share(subjects.predict(subjects.held_out, whole=True), found)
    return Calibrated(found, predicted, share, held_out_cycles)
