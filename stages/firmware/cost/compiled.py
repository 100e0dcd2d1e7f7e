"""A network at some widths as its firmware will be: compiled, placed, every call priced, the image's size known.

Nothing is guessed that the compiler knows: kernels, chains, arena and scratch memory are those of `compile_within` and
`place`, cycles those that the twin's profiler counts for just these calls (`bench`). What the image holds beside the
network (start-up, link, variables) is read off one image that was linked with the same kernels.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

from boards import Board
from hil.virtual.instruction import CoreParameters
from hil.virtual.profiler import touches_between
from hil.virtual.program import Program, read_program
from pipeline.errors import StageError
from stages.firmware.build.image import build_images, write_sources
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.cost.bench import Price, Setting, Task, kernel_places, plugin
from stages.firmware.cost.fills import fill_cycles
from stages.firmware.cost.layout import PLACE_BYTES, Layout, Reference, reference_of
from stages.firmware.cost.own_code import own_code
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.firmware.economy import compile_within
from stages.firmware.memory.footprint import section_bytes
from stages.firmware.memory.regions import MARK_BYTES, place
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement
from stages.graph.graph import Graph
from stages.graph.memory.runtime_bound import runtime_bytes
from stages.graph.simplify.simplification import simplify

MOST_FLASH_BYTES = 64 << 20  # of images that are never run: whether one fits its board is decided by `place`
_TWIN_FLASH_BYTES = 3 << 20  # for constants; the rest of 4 MB for code
_REMEMBERED = 96  # models of a few MB: what `prepare` compiles for every group, `cost` asks for again
_PLACED = 32  # alignment in boards/firmware/core/placement.h
_COPIED = ".data"


@dataclass(frozen=True)
class LayerCost:
    """An op as it runs, several of the network where they are fused."""

    ops: tuple[int, ...]
    kind: str
    name: str
    kernel: str
    cycles_zero_wait: int
    fill_cycles: float
    constant_bytes: int
    assembly_bytes: int
    arena_live_bytes: int

    @property
    def cycles(self) -> float:
        return self.cycles_zero_wait + self.fill_cycles


@dataclass(frozen=True)
class Cost:
    """What a board needs for an inference, and for the firmware."""

    layers: tuple[LayerCost, ...]
    clock_hz: int
    power_w: float
    arena_bytes: int
    scratch_bytes: int
    own_bytes: tuple[int, int]  # of flash and RAM
    beside: Callable[[], tuple[int, int]]  # what is not the network's own, which takes a link to know

    @property
    def flash_bytes(self) -> int:
        return self.own_bytes[0] + self.beside()[0]

    @property
    def ram_bytes(self) -> int:
        return self.own_bytes[1] + self.beside()[1]

    @property
    def cycles_zero_wait(self) -> int:
        return sum(layer.cycles_zero_wait for layer in self.layers)

    @cached_property
    def cycles(self) -> float:
        return sum(layer.cycles for layer in self.layers)

    @property
    def latency_ms(self) -> float:
        return self.cycles / self.clock_hz * 1e3

    @property
    def energy_mj(self) -> float:
        return self.latency_ms * self.power_w


@dataclass(frozen=True, eq=False)
class _Image:
    """What was linked, and of what."""

    twin: Program
    flash_bytes: int
    ram_bytes: int
    model: CompiledModel
    placement: Placement
    between: bytes = b""  # events of what runs between two inferences, where that was asked for

    def beside_bytes(self, prices: Sequence[Price]) -> tuple[int, int]:
        """Flash and RAM that are not the network's own."""
        own = _own_bytes(self.model, self.placement, prices)
        return self.flash_bytes - own[0], self.ram_bytes - own[1]


class Compiler:
    """Compiles one network, at any widths, as one firmware section asks for."""

    def __init__(self, graph: Graph, full: Sequence[int], settings: FirmwareSettings) -> None:
        self.graph, self.full, self.settings = graph, tuple(full), settings
        self._known: dict[tuple[int, ...], CompiledModel] = {}
        self._beside: dict[tuple[object, ...], tuple[int, int]] = {}
        self._images: dict[tuple[str, frozenset[str]], _Image] = {}
        self._references: dict[tuple[str, frozenset[str]], Reference] = {}

    def model(self, widths: Sequence[int]) -> CompiledModel:
        key = tuple(widths)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            drawn = ordered(stand_in(self.graph, key, self.full))
            self._known[key] = compile_within(
                simplify(drawn),
                runtime_bytes(drawn),
                weights=self.settings.weights,
                runtime=self.settings.runtime,
                chains=() if self.settings.fusion == "none" else None,
            )
        return self._known[key]

    def tasks(self, widths: Sequence[int]) -> list[Task]:
        return _tasks(self.model(widths))

    def prepare(self, many: Iterable[Sequence[int]], boards: Iterable[Board], prices: PriceList) -> None:
        """Price all that the costs at these widths will need, in as few goes as can be."""
        wanted: dict[Setting, list[Task]] = {}
        for widths, board in product(many, list(boards)):
            model = self.model(widths)
            with contextlib.suppress(StageError):  # which the cost itself will tell
                image = self._image(model, self._placement(model, board), board)
                wanted.setdefault(self._placed_setting(board, image), []).extend(_tasks(model))
        for setting, tasks in wanted.items():
            prices.of(tasks, setting, traced=True)

    def cost(self, widths: Sequence[int], board: Board, prices: PriceList) -> Cost:
        """On this board."""
        model = self.model(widths)
        placement = self._placement(model, board)
        image = self._image(model, placement, board)
        setting = self._placed_setting(board, image)
        found = prices.of(_tasks(model), setting, traced=True)
        reference = self._reference(image, board, setting, prices)
        own = own_code(model, placement, Toolchain(optimise=setting.optimise, path_names={}, fpu=board.fpu))
        fills = fill_cycles(Layout(model, placement, board, found, reference, own), board)
        return Cost(
            layers=tuple(
                LayerCost(
                    numbers,
                    op.kind,
                    op.name,
                    call.kernel,
                    price.cycles_zero_wait,
                    filled,
                    call.constant_bytes,
                    sum(price.assembly_bytes.values()),
                    live,
                )
                for numbers, op, call, price, filled, live in zip(
                    model.numbers, model.graph.ops, model.calls, found, fills, model.layout.live_bytes, strict=True
                )
            ),
            clock_hz=board.clock_hz,
            power_w=board.power_active_w,
            arena_bytes=_arena_bytes(model, placement),
            scratch_bytes=model.scratch_bytes,
            own_bytes=_own_bytes(model, placement, found),
            beside=partial(self._beside_bytes, tuple(widths), board, found),
        )

    def setting(self, board: Board) -> Setting:
        core = CoreParameters(**(board.calibration.core if board.calibration else {}))
        return Setting("Os" if self.settings.weights == "small" else self.settings.optimise, core)

    def _placed_setting(self, board: Board, image: _Image) -> Setting:
        """With the kernels where the firmware has them."""
        setting = self.setting(board)
        return replace(setting, kernels=kernel_places(image.twin, setting.optimise, board.fpu))

    def _placement(self, model: CompiledModel, board: Board) -> Placement:
        return place(model, board, copy_weights=self.settings.spare_ram == "weights")

    def _image(self, model: CompiledModel, placement: Placement, board: Board) -> _Image:
        """One with the same kernels, for where its code lies."""
        key = board.name, _kernels(model)
        known = self._images.get(key)
        if known is None or (not known.between and _runs(model)):
            self._images[key] = self._link(model, placement, board, traced=_runs(model))
            self._references.pop(key, None)
        return self._images[key]

    def _reference(self, image: _Image, board: Board, setting: Setting, prices: PriceList) -> Reference:
        key = board.name, _kernels(image.model)
        if key not in self._references:
            found = prices.of(_tasks(image.model), setting, traced=True)
            self._references[key] = reference_of(image.twin, image.model, image.placement, image.between)
            self._beside[_kinds(image.model, image.placement, board)] = image.beside_bytes(found)
        return self._references[key]

    def _beside_bytes(self, widths: tuple[int, ...], board: Board, prices: Sequence[Price]) -> tuple[int, int]:
        """Flash and RAM that come with these kernels beside the network's own: of one image that has them."""
        model = self.model(widths)
        placement = self._placement(model, board)
        kinds = _kinds(model, placement, board)
        if kinds not in self._beside:
            self._beside[kinds] = self._link(model, placement, board).beside_bytes(prices)
        return self._beside[kinds]

    def _link(self, model: CompiledModel, placement: Placement, board: Board, *, traced: bool = False) -> _Image:
        """Build a network's images for what they say of others; with `traced` the twin runs, too."""
        with tempfile.TemporaryDirectory(prefix="linked-") as name:
            folder = Path(name)
            write_sources(model, "priced", placement, folder / "generated")
            optimise = self.setting(board).optimise
            images = build_images(board, folder / "generated", optimise, folder, flash_bytes=MOST_FLASH_BYTES)
            sections, used = section_bytes(images.image, board)
            twin = read_program(images.twin)
            between = touches_between(images.twin, bytes(model.input_bytes), plugin()) if traced else b""
        copied = sections.get(_COPIED, 0) if placement.ram_weights else 0
        ram = sum(count for region, count in used.items() if region != "flash") - copied
        return _Image(twin, used["flash"], ram, model, placement, between)


def _tasks(model: CompiledModel) -> list[Task]:
    return [Task(model.network, call) for call in model.calls]


def _runs(model: CompiledModel) -> bool:
    """Whether the twin has flash for it."""
    return sum(call.constant_bytes for call in model.calls) < _TWIN_FLASH_BYTES


def _kernels(model: CompiledModel) -> frozenset[str]:
    """Functions in C that the image has for the network, and whether it has those of fused calls."""
    parts = (part for call in model.calls for part in call.parts or (call,))
    return frozenset([*(part.kernel for part in parts), *("fused" for call in model.calls if call.parts)])


def _kinds(model: CompiledModel, placement: Placement, board: Board) -> tuple[object, ...]:
    """What flash and RAM beside the network's own depend on; of the ops' number the last bit, for what is aligned."""
    macros = placement.macro, placement.scratch_macro, placement.spill is None
    return board.name, _kernels(model), len(model.calls) % 2, model.output_bytes, model.input_bytes, macros


def _own_bytes(model: CompiledModel, placement: Placement, found: Sequence[Price]) -> tuple[int, int]:
    """Of flash: constants, generated code, calls; of RAM: arena, scratch memory, states; and what every op takes."""
    functions = dict(function for price in found for function in price.assembly_bytes.items())
    code = sum(-(-size // 8) * 8 for size in functions.values())  # they are aligned
    code += sum(price.trace.own_code_bytes for price in found if price.trace is not None)
    spill = placement.spill
    arena, others = (spill.first_bytes, [spill.second_bytes]) if spill else (model.layout.arena_bytes, [])
    aligned = sum(-(-part // _PLACED) * _PLACED for part in (model.scratch_bytes, *others))  # before the arena
    places, marks = PLACE_BYTES * len(model.calls), MARK_BYTES * len(model.calls)
    constants = sum(-(-size // 4) * 4 for price in found for size in price.constants_bytes)
    return constants + code + places, aligned + -(-arena // 4) * 4 + model.state_bytes + marks


def _arena_bytes(model: CompiledModel, placement: Placement) -> int:
    spill = placement.spill
    return spill.first_bytes + spill.second_bytes if spill else model.layout.arena_bytes
