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
from typing import Literal

import numpy as np

from boards import Board, Predicted
from hil.virtual.cortex_m7 import CycleModel
from hil.virtual.instruction import CoreParameters, Decoder
from hil.virtual.model_error import NETWORK, area_of
from hil.virtual.profiler import MemoryModel, OpCounts, OpProfile, build_plugin, count_ops, host_compiler
from hil.virtual.program import read_program
from pipeline.errors import ToolError
from stages.firmware.build.image import Images, build_images, write_sources
from stages.firmware.fast.dot import Weights
from stages.firmware.memory.regions import place
from stages.firmware.model_source import compile_model
from stages.firmware.placement import Placement
from stages.graph.graph import Graph
from stages.graph.simplify.simplification import simplify
from stages.measure.modelled import memory_model
from stages.tools.bringup.trial_network import streaming_network, trial_inputs, trial_network
from stages.tools.modelling.fit import Fitted, fitted, prediction_share
from stages.tools.modelling.loop_source import write_loops
from stages.tools.modelling.loops import loops

CORE = tuple(field.name for field in fields(CoreParameters))
CACHE = ("flash_fill_cycles", "ram_load_fill_cycles", "ram_store_fill_cycles", "write_back_cycles")
PARAMETERS = (*CORE, *CACHE)
# Convolutions in the fast RAM, and weights that stream from flash with the arena in the cached RAM.
_NETWORKS: dict[str, tuple[Callable[[], Graph], Weights, Literal["fast", "bulk"]]] = {
    "convolutions_8": (lambda: trial_network(3, 8), "fast", "fast"),
    "convolutions_24": (lambda: trial_network(2, 24), "small", "fast"),
    "streaming_64": (lambda: streaming_network(4, 64), "fast", "bulk"),
    "convolutions_12": (lambda: trial_network(5, 12), "fast", "fast"),
    "convolutions_32": (lambda: trial_network(7, 32), "small", "bulk"),
    "streaming_96": (lambda: streaming_network(6, 96), "fast", "bulk"),
}
_IN_FIT = 3  # of them
OPTIMISED = "O3"  # as the firmware step does


@dataclass(frozen=True)
class Subject:
    """One image: its counts on the twin, and the decoder of its code."""

    name: str
    images: Images
    counts: Sequence[OpCounts]
    decoder: Decoder
    ops: Sequence[tuple[str, str]] = ()  # of a network: kind and kernel of each
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

    def profiles(self, model: MemoryModel) -> list[OpProfile]:
        """Every op as the profiler would give it, at the parameters of `model`."""
        cycles, core = self.cycles(model), CycleModel(self.decoder)
        return [
            OpProfile(index, 0, int(taken) - one.traffic.cycles(model), int(taken), one.traffic, many)
            for index, (one, taken, many) in enumerate(zip(self.counts, cycles, self._multiplies(core), strict=True))
        ]

    def _multiplies(self, core: CycleModel) -> list[int]:
        return [core.multiplies(one.edges) for one in self.counts]

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
        others = [_network(name, board, folder / name, plugin) for name in _NETWORKS]
    model = memory_model(board, read_program(first.images.twin))
    return Subjects((first, *others[:_IN_FIT]), tuple(others[_IN_FIT:]), model)


def _network(name: str, board: Board, folder: Path, plugin: Path) -> Subject:
    return _subject(
        name, board, folder, plugin, trial_inputs(1)[0].tobytes(), write_network(name, board, folder / "generated")
    )


def write_network(name: str, board: Board, generated: Path) -> list[tuple[str, str]]:
    """The sources of a network; kind and kernel of each of its ops."""
    make, weights, memory = _NETWORKS[name]
    compiled = compile_model(simplify(make()), weights=weights)
    placement = place(compiled, board, None, copy_weights=False)
    if memory == "bulk":
        placement = Placement(region=board.arena_regions[1], macro="PLACE_BULK")
    write_sources(compiled, name, placement, generated)
    return [(op.kind, call.kernel) for op, call in zip(compiled.graph.ops, compiled.calls, strict=True)]


def _subject(
    name: str, board: Board, folder: Path, plugin: Path, data: bytes | None, ops: Sequence[tuple[str, str]] = ()
) -> Subject:
    images = build_images(board, folder / "generated", OPTIMISED, folder)
    program = read_program(images.twin)
    counts = count_ops(images.twin, data, memory_model(board, program), plugin)
    return Subject(name, images, counts, Decoder(program), ops)


@dataclass(frozen=True)
class HeldOut:
    """Something that was not in the fit: what was predicted, what that may be off (2 sigma), what it took."""

    predicted: np.ndarray
    share: np.ndarray
    taken: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        return self.predicted / self.taken - 1

    def within(self, chosen: Sequence[int]) -> Predicted:
        """The ratios of these, and what was stated of them."""
        errors, share = self.errors[list(chosen)], float(np.max(self.share[list(chosen)]))
        low, high = min(float(np.min(errors)), -share), max(float(np.max(errors)), share)
        return Predicted(n=len(chosen), low=round(1 + low, 4), high=round(1 + high, 4))


@dataclass(frozen=True)
class Calibrated:
    """Fit, and what it says of networks that were not in it: as a whole, and op by op."""

    fit: Fitted
    networks: HeldOut
    ops: HeldOut
    kernels: Sequence[str]  # of each op
    areas: Sequence[str]

    @property
    def errors(self) -> np.ndarray:
        return self.networks.errors

    @property
    def share(self) -> np.ndarray:
        return self.networks.share

    def by_kernel(self) -> dict[str, Predicted]:
        return {name: self.ops.within(where) for name, where in _places(self.kernels).items()}

    def by_area(self) -> dict[str, Predicted]:
        """Area by area as model_error.py has them, and of whole networks."""
        found = {name: self.ops.within(where) for name, where in _places(self.areas).items()}
        return {**found, NETWORK: self.networks.within(range(len(self.networks.taken)))}


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    return {name: [at for at, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}


def calibrate(subjects: Subjects, fit_cycles: np.ndarray, held_out_cycles: Sequence[np.ndarray]) -> Calibrated:
    """From what the device took for every op of `subjects.fit` and of each network of `held_out`."""
    start = described_values(subjects.described)
    found = fitted(subjects.predict(subjects.fit), fit_cycles, start)
    whole = prediction_share(subjects.predict(subjects.held_out, whole=True), found)
    each = prediction_share(subjects.predict(subjects.held_out), found)
    model = priced(subjects.described, found.values)
    ops = [
        (kernel, area_of(kind, 1 - profile.cycles_zero_wait / max(1, profile.cycles_modelled)))
        for one in subjects.held_out
        for (kind, kernel), profile in zip(one.ops, one.profiles(model), strict=True)
    ]
    return Calibrated(
        found,
        HeldOut(*whole, np.array([taken.sum() for taken in held_out_cycles])),
        HeldOut(*each, np.concatenate(held_out_cycles)),
        [kernel for kernel, _ in ops],
        [area for _, area in ops],
    )
