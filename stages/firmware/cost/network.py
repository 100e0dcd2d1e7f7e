"""What a network costs on its boards as a function of its widths: exactly, and fast enough to be asked at every step.

`exact` compiles the network at these widths and prices what came out (`compiled`). `quick` adds up tables of its layers
(`layer_table`), scaled so that they agree with the exact cost at one place, the `anchor`: there is what no layer knows
alone, such as which are fused and whose weights lie in RAM. The slope of `gradients` is that over a whole step of the
staircase: four channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from boards import Board, load_board
from pipeline.errors import StageError
from stages.firmware.config import FirmwareConfig
from stages.firmware.cost.compiled import MOST_FLASH_BYTES, Compiler, Cost
from stages.firmware.cost.fixed_order import FixedOrder
from stages.firmware.cost.layer_table import BLOCK, FIGURES, Family, LayerTable, TableStack, one_op
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings, settings_of
from stages.firmware.cost.stand_in import stand_in
from stages.firmware.memory.regions import CODE_BYTES, VARIABLE_BYTES, place
from stages.graph.graph import NO_GROUP, Graph, Tensor
from stages.graph.memory.resources import ResourceModel

OBJECTIVES = ("latency_ms", "energy_mj", "flash_bytes", "ram_bytes")
_CYCLES, _LINES, _CONSTANTS, _ASSEMBLY, _PASSES, _SCRATCH = range(len(FIGURES))
_TWO_WAYS = ("CONV_2D", "FULLY_CONNECTED")
_REMEMBERED = 256


@dataclass(frozen=True, eq=False)
class _Count:
    """Channels of a tensor: fixed ones, and so many for each channel of a group."""

    fixed: int
    times: dict[int, int]

    def at(self, widths: Sequence[int]) -> int:
        return self.fixed + sum(times * widths[group] for group, times in self.times.items())


@dataclass(frozen=True, eq=False)
class _Anchor:
    """Where the quick cost agrees with the exact one, on one board; without an exact one it is a first guess."""

    ratios: np.ndarray  # by op: cycles as they are over those of the tables
    in_ram: np.ndarray  # by op: whether its weights lie there
    own_bytes: tuple[float, float] = (0, 0)  # flash and RAM there, by the tables
    exact: Cost | None = None
    common_bytes: int = 0  # of code that several layers share

    @cached_property
    def beside_bytes(self) -> tuple[float, float]:
        """What flash and RAM are beyond the tables, which may take a link to know."""
        if self.exact is None:
            return CODE_BYTES + self.common_bytes, VARIABLE_BYTES
        return self.exact.flash_bytes - self.own_bytes[0], self.exact.ram_bytes - self.own_bytes[1]


class NetworkCost:
    """One network with its firmware settings on some boards."""

    def __init__(
        self,
        graph: Graph,
        full: Sequence[int],
        boards: Iterable[str],
        settings: FirmwareSettings = FirmwareSettings(),  # noqa: B008 (frozen)
        prices: PriceList | None = None,
    ) -> None:
        self.boards: dict[str, Board] = {name: load_board(name).at_clock(settings.clock) for name in boards}
        self.full = tuple(full)
        self._graph, self._settings = graph, settings
        self._prices = prices or PriceList()
        self._compiler = Compiler(graph, full, settings)
        self._exact: dict[tuple[int, ...], dict[str, Cost]] = {}
        self._anchors: dict[str, _Anchor] = {}
        self._tables: list[LayerTable | None] = []
        self._last: tuple[tuple[int, ...], np.ndarray] | None = None  # figures and slopes are asked for at one place
        self._counts = [
            (_count(graph.tensors[op.inputs[0]], self.full), _count(graph.tensors[op.outputs[0]], self.full))
            for op in graph.ops
        ]
        numbers = range(len(self._counts))
        self._fixed = np.array([[count.fixed for count in counts] for counts in self._counts])  # op x in, out
        self._times = np.array(
            [
                [[count.times.get(group, 0) for group in range(len(self.full))] for count in self._counts[n]]
                for n in numbers
            ]
        )  # op x in, out x group
        # Which ops change with which group, and by how many channels in and out for each of the group's.
        self._changed, self._by_group = np.nonzero(self._times.any(axis=1))
        self._steps = self._times[self._changed, :, self._by_group]
        fused = () if settings.fusion == "none" else None
        self._resources = ResourceModel(graph, settings.runtime, fused)
        self._order = FixedOrder(
            *self._resources.order_cases(list(map(float, self.full)))
        )  # the anchor's, once there is one

    def exact(self, widths: Sequence[int]) -> dict[str, Cost]:
        """By board; StageError where the firmware does not fit one."""
        key = tuple(widths)
        if key not in self._exact:
            if len(self._exact) >= _REMEMBERED:
                self._exact.clear()
            self._exact[key] = {
                name: self._compiler.cost(key, board, self._prices) for name, board in self.boards.items()
            }
        return self._exact[key]

    def latency_ms(self, widths: Sequence[int]) -> dict[str, float]:
        """By board, exactly, and whether or not the weights have room in its flash: time can be told without."""
        return {
            name: self._compiler.cost(widths, _with_flash(board, MOST_FLASH_BYTES), self._prices).latency_ms
            for name, board in self.boards.items()
        }

    def fits(self, widths: Sequence[int]) -> bool:
        """Whether the firmware finds room on every board."""
        model = self._compiler.model(widths)
        try:
            for board in self.boards.values():
                place(model, board, copy_weights=False)
        except StageError:
            return False
        return True

    def prepare(self, many: Iterable[Sequence[int]]) -> None:
        """Price all that the exact costs at these widths will need in one go."""
        unknown = [tuple(widths) for widths in many if tuple(widths) not in self._exact]
        self._compiler.prepare(unknown, self.boards.values(), self._prices)

    def anchor(self, widths: Sequence[int]) -> None:
        """Let the quick cost agree with the exact one here."""
        exact, base = self.exact(widths), self._layers(widths)
        self._order = FixedOrder(*self._resources.order_cases(list(map(float, widths))))
        model = self._compiler.model(widths)
        numbers = {op.name: number for number, op in enumerate(self._graph.ops)}
        for name, board in self.boards.items():
            placed = place(model, board, copy_weights=self._settings.spare_ram == "weights")
            members = [[numbers[model.network.ops[n].name] for n in ops] for ops in model.numbers]
            in_ram = np.zeros(len(base), bool)
            in_ram[[n for index in placed.ram_weights for n in members[index]]] = True
            quick = _cycles(base, in_ram, board)
            ratios = np.ones(len(base))
            for ops, layer in zip(members, exact[name].layers, strict=True):
                tabled = sum(quick[n] for n in ops)
                ratios[ops] = layer.cycles / tabled if tabled > 0 else 1.0
            own = _flash_bytes(base), self._ram_bytes(base, widths)
            self._anchors[name] = _Anchor(ratios, in_ram, own, exact[name])

    def quick(self, widths: Sequence[int], wanted: Sequence[str] = OBJECTIVES) -> dict[str, dict[str, float]]:
        """What is wanted of OBJECTIVES, by board."""
        layers = self._layers(widths)
        return {name: self._figures(name, layers, widths, wanted) for name in self.boards}

    def gradients(self, widths: Sequence[int], wanted: Sequence[str] = OBJECTIVES) -> dict[str, dict[str, np.ndarray]]:
        """Slopes of the quick cost by the width of each group: over the step of the staircase below it."""
        layers, here = self._layers(widths), self._channels(widths)
        steps = np.minimum(BLOCK, np.array(widths) - 1)
        steps = np.where(steps > 0, steps, -BLOCK)
        step = steps[self._by_group]
        there = here[self._changed] - self._steps * step[:, None]
        slopes = np.zeros((len(self.full), *layers.shape))
        below = self._stack.at(self._changed, there[:, 0], there[:, 1])
        slopes[self._by_group, self._changed] = (layers[self._changed] - below) / step[:, None]
        if "ram_bytes" in wanted:
            scratch = np.tile(layers[:, _SCRATCH], (len(steps), 1))
            scratch[self._by_group, self._changed] = below[:, _SCRATCH]
            narrower = self._order.peaks(np.array(widths) - np.diag(steps)) + scratch.max(axis=1)
            ram = (self._ram_bytes(layers, widths) - narrower) / steps
        found = {}
        for name, board in self.boards.items():
            anchor = self._anchor(name)
            priced = _cycles(slopes, anchor.in_ram, board, layers) @ anchor.ratios
            latency = priced / board.clock_hz * 1e3
            found[name] = {
                "latency_ms": latency,
                "energy_mj": latency * board.power_active_w,
                "flash_bytes": slopes[:, :, [_CONSTANTS, _ASSEMBLY]].sum((1, 2)),
            }
            if "ram_bytes" in wanted:
                found[name]["ram_bytes"] = ram
        return found

    def _figures(self, name: str, layers: np.ndarray, widths: Sequence[int], wanted: Sequence[str]) -> dict[str, float]:
        anchor, board = self._anchor(name), self.boards[name]
        latency = float(_cycles(layers, anchor.in_ram, board) @ anchor.ratios) / board.clock_hz * 1e3
        found = {"latency_ms": latency, "energy_mj": latency * board.power_active_w}
        if "flash_bytes" in wanted:
            found["flash_bytes"] = anchor.beside_bytes[0] + _flash_bytes(layers)
        if "ram_bytes" in wanted:
            found["ram_bytes"] = anchor.beside_bytes[1] + self._ram_bytes(layers, widths)
        return found

    def _ram_bytes(self, layers: np.ndarray, widths: Sequence[int]) -> float:
        """Of arena and scratch memory."""
        return self._order.peak(widths) + float(layers[:, _SCRATCH].max())

    def _anchor(self, name: str) -> _Anchor:
        """Until there is one, the tables alone count, and all weights lie in RAM."""
        if name not in self._anchors:
            self._build_tables()
            functions = {name: size for table in self._tables if table for name, size in table.common.items()}
            common = sum(-(-size // 8) * 8 for size in functions.values())
            ops = len(self._graph.ops)
            return _Anchor(np.ones(ops), np.ones(ops, bool), common_bytes=common)
        return self._anchors[name]

    def _channels(self, widths: Sequence[int]) -> np.ndarray:
        """In and out of every op."""
        found: np.ndarray = self._fixed + self._times @ np.array(widths)
        return found

    def _layers(self, widths: Sequence[int]) -> np.ndarray:
        """FIGURES of every op by its table."""
        key = tuple(widths)
        if self._last is None or self._last[0] != key:
            channels = self._channels(widths)
            numbers = np.arange(len(channels))
            self._last = key, self._stack.at(numbers, channels[:, 0], channels[:, 1])
        return self._last[1]

    @cached_property
    def _stack(self) -> TableStack:
        self._build_tables()
        return TableStack(self._tables)

    def _build_tables(self) -> None:
        """All of them from one run of the bench; layers that differ in nothing share one."""
        if self._tables:
            return
        graph = stand_in(self._graph, self.full, self.full)
        by_key: dict[str, LayerTable] = {}
        for number, op in enumerate(graph.ops):
            if op.kind == "RESHAPE":
                self._tables.append(None)
                continue
            inputs, outputs = self._counts[number]
            is_tied = op.kind not in _TWO_WAYS
            family = Family(
                one_op(graph, number),
                self._settings.weights,
                inputs.at(self.full),
                outputs.at(self.full),
                bool(inputs.times or (is_tied and outputs.times)),
                bool(outputs.times),
                is_tied,
            )
            self._tables.append(by_key.setdefault(family.key, LayerTable(family)))
        wanted = {(key, at): task for key, table in by_key.items() for at, task in table.wanted.items()}
        setting = self._compiler.setting(next(iter(self.boards.values())))
        found = dict(zip(wanted, self._prices.of(list(wanted.values()), setting), strict=True))
        for key, table in by_key.items():
            table.fill({at: price for (own, at), price in found.items() if own == key})


def _with_flash(board: Board, size_bytes: int) -> Board:
    flash = board.memories["flash"].model_copy(update={"size": size_bytes})
    return board.model_copy(update={"memories": {**board.memories, "flash": flash}})


def _flash_bytes(layers: np.ndarray) -> float:
    """Of constants and generated code."""
    return float(layers[:, [_CONSTANTS, _ASSEMBLY]].sum())


def _count(tensor: Tensor, full: Sequence[int]) -> _Count:
    if tensor.channels is None:
        return _Count(tensor.shape[-1], {})
    groups, counts = np.unique(tensor.channels[:, 0], return_counts=True)
    found = dict(zip(groups.tolist(), counts.tolist(), strict=True))
    fixed = found.pop(NO_GROUP, 0)
    return _Count(fixed, {group: count // full[group] for group, count in found.items()})


def _cycles(layers: np.ndarray, in_ram: np.ndarray, board: Board, absolute: np.ndarray | None = None) -> np.ndarray:
    """With line fills, by op, of figures or of slopes (which `absolute` figures belong to)."""
    cache = board.cache
    whole = layers if absolute is None else absolute
    passes = np.where(whole[:, _CONSTANTS] > cache.data.size, np.maximum(whole[:, _PASSES], 1), 1)
    lines = layers[..., _LINES] + np.where(in_ram, 0, layers[..., _CONSTANTS] / cache.line * passes)
    found: np.ndarray = layers[..., _CYCLES] + lines * cache.flash_fill_cycles
    return found


def network_cost(graph: Graph, full: Sequence[int], boards: Iterable[str], firmware: Mapping[str, str]) -> NetworkCost:
    """For those who know this room by name only (stages/prune)."""
    return NetworkCost(graph, full, boards, settings_of(FirmwareConfig.model_validate(dict(firmware))))
