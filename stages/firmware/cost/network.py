"""What a network costs on its boards as a function of its widths: exactly, and fast enough to be asked at every step.

`exact` compiles the network at these widths and prices what came out (`compiled`). `quick` adds up tables of its layers
(`layer_table`), scaled so that they agree with the exact cost at one place, the `anchor`: there is what no layer knows
alone, such as which are fused and whose weights lie in RAM. The slope of `gradients` is that over a whole step of the
staircase: four channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boards import Board, load_board
from pipeline.errors import StageError
from stages.firmware.cost.compiled import Compiler, Cost
from stages.firmware.cost.layer_table import BLOCK, FIGURES, Family, LayerTable, one_op
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
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
    """Where the quick cost agrees with the exact one, on one board."""

    beside: Callable[[], tuple[int, int]]  # of flash and RAM: not the network's own
    ratios: np.ndarray  # by op: cycles as they are over those of the tables
    in_ram: frozenset[int]  # ops whose weights lie there
    spare_bytes: float  # of the arena, beyond the peak of the resource model


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
        self.boards: dict[str, Board] = {name: load_board(name) for name in boards}
        self.full = tuple(full)
        self._graph, self._settings = graph, settings
        self._prices = prices or PriceList()
        self._compiler = Compiler(graph, full, settings)
        self._exact: dict[tuple[int, ...], dict[str, Cost]] = {}
        self._anchors: dict[str, _Anchor] = {}
        self._tables: list[LayerTable | None] = []
        self._counts = [
            (_count(graph.tensors[op.inputs[0]], self.full), _count(graph.tensors[op.outputs[0]], self.full))
            for op in graph.ops
        ]
        self._touched = [
            [
                (number, inputs.times.get(group, 0), outputs.times.get(group, 0))
                for number, (inputs, outputs) in enumerate(self._counts)
                if group in inputs.times or group in outputs.times
            ]
            for group in range(len(self.full))
        ]
        self._peak = ResourceModel(graph, settings.runtime)

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
        settings = {self._compiler.setting(board): None for board in self.boards.values()}
        tasks = [task for widths in many if tuple(widths) not in self._exact for task in self._compiler.tasks(widths)]
        for setting in settings:
            self._prices.of(tasks, setting, traced=True)

    def anchor(self, widths: Sequence[int]) -> None:
        """Let the quick cost agree with the exact one here."""
        exact, base = self.exact(widths), self._layers(widths)
        model = self._compiler.model(widths)
        numbers = {op.name: number for number, op in enumerate(self._graph.ops)}
        for name, board in self.boards.items():
            placed = place(model, board, copy_weights=self._settings.spare_ram == "weights")
            members = [[numbers[model.network.ops[n].name] for n in ops] for ops in model.numbers]
            in_ram = frozenset(n for index in placed.ram_weights for n in members[index])
            quick = _cycles(base, in_ram, board)
            ratios = np.ones(len(base))
            for ops, layer in zip(members, exact[name].layers, strict=True):
                own = sum(quick[n] for n in ops)
                ratios[ops] = layer.cycles / own if own > 0 else 1.0
            peak = self._peak.usage(list(map(float, widths))).peak_bytes
            self._anchors[name] = _Anchor(exact[name].beside, ratios, in_ram, exact[name].arena_bytes - peak)

    def quick(self, widths: Sequence[int], wanted: Sequence[str] = OBJECTIVES) -> dict[str, dict[str, float]]:
        """What is wanted of OBJECTIVES, by board."""
        layers = self._layers(widths)
        return {name: self._figures(name, layers, widths, wanted) for name in self.boards}

    def gradients(self, widths: Sequence[int], wanted: Sequence[str] = OBJECTIVES) -> dict[str, dict[str, np.ndarray]]:
        """Slopes of the quick cost by the width of each group: over the step of the staircase below it."""
        layers = self._layers(widths)
        slopes = np.zeros((len(self.full), *layers.shape))
        here = [(inputs.at(widths), outputs.at(widths)) for inputs, outputs in self._counts]
        for group, width in enumerate(widths):
            step = min(BLOCK, width - 1) or -BLOCK
            for number, inputs, outputs in self._touched[group]:
                table = self._tables[number]
                if table is not None:
                    there = table.at(here[number][0] - inputs * step, here[number][1] - outputs * step)
                    slopes[group, number] = (layers[number] - there) / step
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
                found[name]["ram_bytes"] = self._peak.gradients(list(map(float, widths))).peak_bytes
        return found

    def _figures(self, name: str, layers: np.ndarray, widths: Sequence[int], wanted: Sequence[str]) -> dict[str, float]:
        anchor, board = self._anchor(name), self.boards[name]
        latency = float(_cycles(layers, anchor.in_ram, board) @ anchor.ratios) / board.clock_hz * 1e3
        found = {"latency_ms": latency, "energy_mj": latency * board.power_active_w}
        if "flash_bytes" in wanted:
            functions = {name: size for table in self._tables if table for name, size in table.common.items()}
            common = sum(-(-size // 8) * 8 for size in functions.values())
            found["flash_bytes"] = anchor.beside()[0] + common + float(layers[:, [_CONSTANTS, _ASSEMBLY]].sum())
        if "ram_bytes" in wanted:
            arena = self._peak.usage(list(map(float, widths))).peak_bytes + anchor.spare_bytes
            found["ram_bytes"] = anchor.beside()[1] + arena + float(layers[:, _SCRATCH].max())
        return found

    def _anchor(self, name: str) -> _Anchor:
        """Until there is one, the tables alone count, and all weights lie in RAM."""
        every = frozenset(range(len(self._graph.ops)))
        return self._anchors.get(name) or _Anchor(_guessed, np.ones(len(every)), every, 0)

    def _layers(self, widths: Sequence[int]) -> np.ndarray:
        """FIGURES of every op by its table."""
        if not self._tables:
            self._build_tables()
        found = np.zeros((len(self._tables), len(FIGURES)))
        for number, (table, (inputs, outputs)) in enumerate(zip(self._tables, self._counts, strict=True)):
            if table is not None:
                found[number] = table.at(inputs.at(widths), outputs.at(widths))
        return found

    def _build_tables(self) -> None:
        """All of them from one run of the bench; layers that differ in nothing share one."""
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


def _guessed() -> tuple[int, int]:
    return CODE_BYTES, VARIABLE_BYTES


def _count(tensor: Tensor, full: Sequence[int]) -> _Count:
    if tensor.channels is None:
        return _Count(tensor.shape[-1], {})
    groups, counts = np.unique(tensor.channels[:, 0], return_counts=True)
    found = dict(zip(groups.tolist(), counts.tolist(), strict=True))
    fixed = found.pop(NO_GROUP, 0)
    return _Count(fixed, {group: count // full[group] for group, count in found.items()})


def _cycles(layers: np.ndarray, in_ram: frozenset[int], board: Board, absolute: np.ndarray | None = None) -> np.ndarray:
    """With line fills, by op, of figures or of slopes (which `absolute` figures belong to)."""
    cache = board.cache
    whole = layers if absolute is None else absolute
    streams = np.array([n not in in_ram for n in range(len(whole))])
    passes = np.where(whole[:, _CONSTANTS] > cache.data.size, np.maximum(whole[:, _PASSES], 1), 1)
    lines = layers[..., _LINES] + np.where(streams, layers[..., _CONSTANTS] / cache.line * passes, 0)
    found: np.ndarray = layers[..., _CYCLES] + lines * cache.flash_fill_cycles
    return found


def network_cost(graph: Graph, full: Sequence[int], boards: Iterable[str], firmware: Mapping[str, str]) -> NetworkCost:
    """For those who know this room by name only (stages/prune)."""
    return NetworkCost(graph, full, boards, FirmwareSettings(**firmware))  # type: ignore[arg-type]
