"""What a device takes for loops and networks -> the parameters of its cycle model, and how well they predict others.

The twin counts what the loops and the operators of trial networks execute; any parameters price these counts. What the
device took for the same code then tells the parameters (`fit.py`). Networks that are no part of the fit say how good
they are. Without a device the twin with its described parameters stands in, which proves the path, not a board.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
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
    # Zero-wait cycles as computed before, by op and by the values of those parameters that it depends on.
    issued: dict[tuple[int, tuple[float, ...]], int] = field(default_factory=dict)

    def cycles(self, model: MemoryModel) -> np.ndarray:
        """Of every op, at the parameters of `model`."""
        core, found = None, []
        for index, (one, names) in enumerate(zip(self.counts, self.sensitive_to, strict=True)):
            key = index, tuple(getattr(model.core, name) for name in names)
            if key not in self.issued:
                core = core or CycleModel(self.decoder.adjusted(model.core))
                self.issued[key] = core.cycles(one.edges)
            found.append(self.issued[key] + one.traffic.cycles(model))
        return np.array(found, float)

    @cached_property
    def sensitive_to(self) -> list[tuple[str, ...]]:
        """The parameters that each op depends on: those of its instructions."""
        return [_sensitive_to(one, self.decoder) for one in self.counts]


def _sensitive_to(counts: OpCounts, decoder: Decoder) -> tuple[str, ...]:
    blocks = {block for edge in counts.edges for block in (edge.before, edge.to) if block is not None}
    code = [instruction for block in blocks for instruction in decoder.block(*block)]
    names = {name for instruction in code for name in instruction.priced_by if name}
    names |= {"return_cycles"} if any(one.is_return for one in code) else set()
    names |= {"mispredicted_cycles"} if any(one.is_conditional_branch for one in code) else set()
    names |= {"load_to_multiply"} if any(one.is_load for one in code) else set()
    return tuple(sorted(names))


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
