"""What one layer costs at any number of channels in and out, from some that were priced.

A kernel works on blocks of four output channels, one after the other, so that its cost grows by the same amount with
each block; and on pairs and fours of input channels, on straight code as long as there is room for it. So between two
priced numbers of channels, with the same remainder by four, the cost is on a line as long as the kernel is the same:
wherever the generator changes it (other loops, other buffers) both sides of the change are priced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stages.firmware.cost.bench import Price, Task
from stages.firmware.cost.stand_in import drawn_op
from stages.firmware.fast.calls import fast_call
from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.portable import batch_of, kernel_call
from stages.firmware.memory.regions import weight_passes
from stages.firmware.model_source import CompiledModel
from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import arena_layout

BLOCK = 4  # channels
_MOST_CHANGES = 6  # of the kernel over the channels; those of buffer sizes beyond are small
_USUAL = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # channels that are priced in any case
_FORM = re.compile(r"\.(rows|tile|part|strip|is_ring|is_by_pixel|block|lines) = (\d+)")
FIGURES = ("cycles", "code_lines", "constant_bytes", "assembly_bytes", "passes", "scratch_bytes")


@dataclass(frozen=True)
class Family:
    """Layers that differ in their numbers of channels only."""

    graph: Graph  # of this op alone, unpruned
    weights: Weights
    inputs: int  # channels, unpruned
    outputs: int
    inputs_vary: bool
    outputs_vary: bool
    are_tied: bool  # as many out as in, times a constant

    @property
    def key(self) -> str:
        op, tensors = self.graph.ops[0], self.graph.tensors
        shapes = [tensors[index].shape for index in (*op.inputs, *op.outputs) if index >= 0]
        grids = [tensors[index].quantisation for index in self.graph.activations_of(op)]
        varies = (self.inputs_vary, self.outputs_vary, self.are_tied)
        return repr((op.kind, op.options, shapes, grids, tensors[op.outputs[0]].quantisation, self.weights, varies))

    def task(self, inputs: int, outputs: int) -> Task:
        """The layer with so many channels."""
        graph = drawn_op(self.graph, inputs, outputs)
        op = graph.ops[0]
        fast = fast_call(graph, op, "op_0", self.weights) if batch_of(graph, op) == 1 else None
        return Task(graph, fast or kernel_call(graph, 0))


def form(call: KernelCall) -> tuple[object, ...]:
    """What changes where the generator chooses another kernel, and not with the number of channels alone."""
    sizes = tuple(_FORM.findall(call.constants)) if "conv" not in call.kernel else ()
    labels = tuple(sum(line.endswith(":") for line in text.splitlines()) for _, text in call.assembly)
    rows = tuple(re.findall(r"\.rows = (\d+)", call.constants))
    return call.kernel, sizes, labels, rows


class LayerTable:
    """Figures at any channels; `wanted` are the tasks whose prices it needs."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._tasks: dict[tuple[int, int], Task] = {}
        self.common: dict[str, int] = {}  # functions that it takes at any width, by name, with their bytes
        first, last = BLOCK, max(BLOCK, family.inputs // BLOCK * BLOCK)
        self._two_ways = family.inputs_vary and family.outputs_vary and not family.are_tied
        self._some_out = 2 * BLOCK if self._two_ways and family.outputs >= 2 * BLOCK else self._out(family.inputs)
        are_few = family.inputs < BLOCK  # then all are priced
        if family.inputs_vary:
            self.ins = list(range(1, family.inputs + 1)) if are_few else self._nodes(first, last)
        else:
            self.ins = [family.inputs]
        if family.outputs_vary and not family.are_tied:
            most = family.outputs // BLOCK * BLOCK
            self.outs = sorted({min(BLOCK, family.outputs), *(n for n in (2 * BLOCK, most) if 0 < n <= most)})
        else:
            self.outs = []
        self.odd_ins = (
            {rest: self._bases(rest) for rest in range(1, BLOCK)} if family.inputs_vary and not are_few else {}
        )
        self.odd_out = next((o for o in (2 * BLOCK + 1, BLOCK + 1) if self.outs and o < family.outputs), None)
        self.odd_out_ins = sorted({self.ins[0], self.ins[-1]}) if self.odd_out else []

    def _out(self, inputs: int) -> int:
        """Channels out for so many in, where only those in vary."""
        family = self.family
        return inputs * family.outputs // family.inputs if family.are_tied else family.outputs

    def _nodes(self, first: int, last: int) -> list[int]:
        usual = {n for n in _USUAL if n <= last} | {first, last}
        return sorted(usual | set(self._changes(first, last)))

    def _bases(self, rest: int) -> list[int]:
        """Where a remainder is priced; a layer with one axis has jumps that depend on it."""
        few = {self.ins[0], self.ins[len(self.ins) // 2], self.ins[-1]}
        wanted = few if self._two_ways else set(self.ins)
        most = self.family.inputs
        return sorted({base + rest if base + rest <= most else max(1, base - BLOCK + rest) for base in wanted})

    def _changes(self, first: int, last: int) -> list[int]:
        """Both sides of every change of the kernel, found by halving."""
        found: list[int] = []
        open_parts = [(first, last)]
        while open_parts and len(found) < 2 * _MOST_CHANGES:
            low, high = open_parts.pop()
            if self._form(low) == self._form(high):
                continue
            if high - low <= BLOCK:
                found += [low, high]
                continue
            middle = (low + high) // (2 * BLOCK) * BLOCK
            open_parts += [(low, middle), (middle, high)]
        return found

    def _form(self, inputs: int) -> tuple[object, ...]:
        return form(self._task(inputs, self._column(inputs)).call)

    def _column(self, inputs: int) -> int:
        return self._some_out if self._two_ways else self._out(inputs)

    def _task(self, inputs: int, outputs: int) -> Task:
        if (inputs, outputs) not in self._tasks:
            self._tasks[inputs, outputs] = self.family.task(inputs, outputs)
        return self._tasks[inputs, outputs]

    def _places(self) -> Iterator[tuple[int, int]]:
        for inputs in self.ins:
            yield from ((inputs, out) for out in (self.outs or [self._out(inputs)]))
        for bases in self.odd_ins.values():
            yield from ((inputs, self._column(inputs)) for inputs in bases)
        if self.odd_out:
            yield from ((inputs, self.odd_out) for inputs in self.odd_out_ins)

    @property
    def wanted(self) -> dict[tuple[int, int], Task]:
        return {place: self._task(*place) for place in self._places()}

    def fill(self, prices: dict[tuple[int, int], Price]) -> None:
        """Make the table; tasks are no longer needed then."""
        every = [set(price.assembly_bytes.items()) for price in prices.values()]
        self.common = dict(set.intersection(*every)) if len(every) > 1 else {}
        values = {place: _figures(self._tasks[place], price, self.common) for place, price in prices.items()}
        family = self.family
        axis = np.arange(family.inputs + 1) if family.inputs_vary else np.array([family.inputs])
        columns = self.outs or [0]

        def line(places: Sequence[tuple[int, int]], known: Callable[[tuple[int, int]], np.ndarray]) -> np.ndarray:
            at = [place[0] for place in places]
            stacked = np.stack([known(place) for place in places])
            return np.stack([np.interp(axis, at, stacked[:, k]) for k in range(len(FIGURES))], axis=1)

        base = [line([(i, out or self._out(i)) for i in self.ins], values.__getitem__) for out in columns]
        row = 0 if not family.inputs_vary else None
        reference = base[columns.index(self._some_out)] if self._two_ways and self._some_out in columns else base[-1]
        reference, even = reference.copy(), [column.copy() for column in base]
        for rest, bases in self.odd_ins.items():
            if not bases:
                continue
            places = [(i, self._column(i)) for i in bases]
            odd = line(places, lambda place: values[place] - reference[_paired(place[0], family.inputs)])
            chosen = axis % BLOCK == rest
            paired = [_paired(int(n), family.inputs) for n in axis[chosen]]
            for column, smooth in zip(base, even, strict=True):
                column[chosen] = smooth[paired] + odd[chosen]
        self._set_lines(np.stack(base, axis=1))
        if self.odd_out:
            blocks = -(-self.odd_out // BLOCK)
            places = [(i, self.odd_out) for i in self.odd_out_ins]
            self.rest = line(places, lambda place: values[place] - self._along(place[0] if row is None else 0, blocks))
        self._tasks.clear()

    def _set_lines(self, cells: np.ndarray) -> None:
        """Over the blocks of four channels out, of cells (inputs x outputs x figures): two lines, to a knee and on."""
        at = [-(-out // BLOCK) for out in self.outs]
        self.rest = np.zeros((len(cells), len(FIGURES)))
        self.knee = at[1] if len(at) == 3 else np.inf
        ends = [(0, 1), (1, 2)] if len(at) == 3 else [(0, 1)] * 2 if len(at) == 2 else []
        if ends:
            slopes = [(cells[:, q] - cells[:, p]) / (at[q] - at[p]) for p, q in ends]
            self.slopes = np.stack(slopes, axis=1)
            self.starts = np.stack([cells[:, p] for p, _ in ends], axis=1) - self.slopes * [[[at[p]] for p, _ in ends]]
        else:  # as many as there are, or in proportion
            whole = np.repeat(cells[:, :1], 2, axis=1)
            self.slopes = whole / at[0] if at else np.zeros_like(whole)
            self.starts = np.zeros_like(whole) if at else whole

    def _along(self, row: int, blocks: int) -> np.ndarray:
        part = int(blocks > self.knee)
        found: np.ndarray = self.starts[row, part] + blocks * self.slopes[row, part]
        return found


class TableStack:
    """Tables of many layers as one, for figures of all of them in one go; None: a layer that costs nothing."""

    def __init__(self, tables: Sequence[LayerTable | None]) -> None:
        distinct = list(dict.fromkeys(table for table in tables if table is not None))
        first = dict(zip(distinct, np.cumsum([1, *(len(table.rest) for table in distinct)]).tolist(), strict=False))
        none = np.zeros((1, 2, len(FIGURES)))
        self._starts = np.concatenate([none, *(table.starts for table in distinct)])
        self._slopes = np.concatenate([none, *(table.slopes for table in distinct)])
        self._rest = np.concatenate([none[:, 0], *(table.rest for table in distinct)])
        self._first = np.array([first[table] if table else 0 for table in tables])
        self._varies = np.array([table is not None and table.family.inputs_vary for table in tables])
        self._knee = np.array([table.knee if table else np.inf for table in tables])
        self._has_outs = np.array([table is not None and bool(table.outs) for table in tables])

    def at(self, numbers: np.ndarray, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        """FIGURES of layers by their numbers, with so many channels in and out."""
        rows = self._first[numbers] + np.where(self._varies[numbers], inputs, 0)
        blocks = -(-outputs // BLOCK)
        part = (blocks > self._knee[numbers]).astype(int)
        found: np.ndarray = self._starts[rows, part] + blocks[:, None] * self._slopes[rows, part]
        found += np.where(self._has_outs[numbers] & (outputs % BLOCK > 0), 1.0, 0.0)[:, None] * self._rest[rows]
        return found


def _paired(inputs: int, most: int) -> int:
    """Taps go in pairs."""
    return min(inputs + inputs % 2, most)


def _figures(task: Task, price: Price, common: Mapping[str, int]) -> np.ndarray:
    model = CompiledModel(
        graph=task.graph, layout=arena_layout(task.graph), calls=(task.call,), network=task.graph, runtime="classic"
    )
    passes = weight_passes(model, 0, 0)
    own = sum(-(-size // 8) * 8 for name, size in price.assembly_bytes.items() if name not in common)
    sizes = (task.call.constant_bytes, own, passes, task.call.scratch_bytes)
    return np.array([price.cycles_zero_wait, sum(price.code_lines.values()), *sizes], float)


def one_op(graph: Graph, number: int) -> Graph:
    """The op alone; the graph has int8 tensors already."""
    op = graph.ops[number]
    kept = list(dict.fromkeys(index for index in (*op.inputs, *op.outputs) if index >= 0))
    whole = replace(graph, ops=(op,), inputs=tuple(graph.activations_of(op)), outputs=op.outputs)
    return whole.with_tensors(kept)
