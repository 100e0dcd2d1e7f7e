"""A float Graph as a torch network that computes as the int8 device will: weights and activations on their int8 grids.

Weights are symmetric (-127 ... 127), one scale per output channel, one for all of a fully connected layer. Activations
have one scale and a zero point that represents 0 exactly; see `grids` for those that share one.

Between the ops travel steps: whole numbers q - zero point, as float32. Sums of products of steps are exact below 2^24,
as on the device, so that both round the same numbers. In eval mode every rounding is the device's own
(`device_rounding`): what differs then comes from sums beyond 2^24 alone. In training mode values are rounded once,
which is faster, and gradients pass straight through inside the grid's range and are blocked outside. In both modes
functions of one operand are looked up in the device's table.

The scale s of an activation can be trained, too (Esser et al. 2020, arXiv:1902.08153): of a value y = q s the slope is
dy/ds = q - x/s inside the range and q at its ends; zero points stay. What is trained is the logarithm of s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.errors import StageError
from stages.graph.arithmetic import torch_kernels as kernels
from stages.graph.graph import WEIGHTED, Graph, Op, Quantisation
from stages.qat import device_rounding as device
from stages.qat.grids import (
    PROBABILITY_GRID,
    calibrated_grid,
    grid_owners,
    grid_sources,
    sampled,
    step_range,
    step_table,
)

_UNARY = frozenset({"LOGISTIC", "HARD_SWISH", "RELU", "RELU6"})
_COPIES = frozenset({"MAX_POOL_2D", "RESHAPE", "PAD", "CONCATENATION"})
_UNDERSTOOD = WEIGHTED | _UNARY | _COPIES | {"ADD", "MUL", "AVERAGE_POOL_2D", "MEAN", "SOFTMAX"}
_LARGEST_BIAS = 2.0**30  # in int32 units: leaves room for the products
_VALUES_AT_ONCE = 1 << 26  # while calibrating: a quarter of a gigabyte for one tensor


class FakeQuantNetwork(nn.Module):
    """Interprets `graph`; input NCHW, output the logits. Weights and biases are trained, the grids are calibrated."""

    scales: Tensor  # per tensor of the graph; those that are no activation, or use another's grid, stay at 1
    zero_points: Tensor
    stretch: nn.Parameter | None  # where ranges are learned, of every scale: the logarithm of what training made of it

    def __init__(self, graph: Graph, percentile: float | None = None, learns_ranges: bool = False) -> None:
        super().__init__()
        _check(graph)
        self.graph = graph
        self.quantises = True
        self.percentile = percentile  # of the values that a range covers; None: the least error decides
        self.weights = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        for number, op in enumerate(graph.ops):
            if op.kind in WEIGHTED:
                weight = torch.from_numpy(kernels.to_torch_layout(op.kind, graph.tensors[op.inputs[1]].data))
                self.weights[str(number)] = nn.Parameter(weight.contiguous(memory_format=_memory_format(weight)))
                self.biases[str(number)] = nn.Parameter(torch.from_numpy(graph.tensors[op.inputs[2]].data.copy()))
        self.grid_of = grid_owners(graph)
        count = len(graph.tensors)
        self.register_buffer("scales", torch.ones(count))
        self.register_buffer("zero_points", torch.zeros(count))
        self.register_parameter("stretch", nn.Parameter(torch.zeros(count)) if learns_ranges else None)
        sources = grid_sources(graph, self.grid_of)
        self._deciding = frozenset(index for members in sources.values() for index in members)
        self._shared = frozenset(owner for owner, members in sources.items() if len(members) > 1)
        self._prescribed = frozenset(op.outputs[0] for op in graph.ops if op.kind == "LOGISTIC")
        for index in self._prescribed:
            self._set_grid(index, PROBABILITY_GRID.scale[0], PROBABILITY_GRID.zero_point[0])
        self._calibrates = False
        self._means: dict[str, Tensor] | None = None  # of the channels of each layer, while they are looked at
        self._observed: dict[int, list[np.ndarray]] | None = None
        self._last_use = {index: number for number, op in enumerate(graph.ops) for index in op.inputs}
        self._last_use.update(dict.fromkeys(graph.outputs, len(graph.ops)))

    def forward(self, x: Tensor) -> Tensor:
        source, result = self.graph.inputs[0], self.graph.outputs[0]
        values = {source: self._entered(x)}
        for number, op in enumerate(self.graph.ops):
            if op.kind == "SOFTMAX":  # the loss wants logits, and softmax changes no ranking
                result = op.inputs[0]
                break
            values[op.outputs[0]] = self._run(number, op, values)
            for index in op.inputs:
                if self._last_use[index] == number:
                    values.pop(index, None)
        return values[result] * self._scale(result) if self.quantises else values[result]

    def calibrate(self, x: Tensor, values_at_once: int = _VALUES_AT_ONCE) -> None:
        """Choose every activation's grid from these inputs, front to back: each sees the rounding before it.

        Of a large network's inputs only the first are looked at, so that no tensor exceeds `values_at_once`.
        """
        largest = max(self.graph.tensors[index].elements for index in self.grid_of)
        x = x[: max(1, values_at_once // largest)]
        with torch.no_grad():
            if self.stretch is not None:
                self.stretch.zero_()
            if self._shared:
                self._calibrate_shared(x)
            self._calibrates = True
            try:
                self(x)
            finally:
                self._calibrates = False

    def _calibrate_shared(self, x: Tensor) -> None:
        """Grids that several ops write to: all of them must have been seen first, so they are seen without rounding."""
        self._observed = {owner: [] for owner in self._shared}
        try:
            with self.without_rounding():
                self(x)
            for owner, seen in self._observed.items():
                self._set_grid(owner, *calibrated_grid(torch.from_numpy(np.concatenate(seen)), "none", self.percentile))
        finally:
            self._observed = None

    @contextmanager
    def without_rounding(self) -> Iterator[None]:
        """Meanwhile it is the float network."""
        before, self.quantises = self.quantises, False
        try:
            yield
        finally:
            self.quantises = before

    def quantised_graph(self) -> Graph:
        """The graph with the trained float weights and, on every tensor, the grid to round to."""
        tensors = list(self.graph.tensors)
        for index, owner in self.grid_of.items():
            tensors[index] = replace(tensors[index], quantisation=self._grid(owner))
        for op in self.graph.ops:
            if op.kind == "SOFTMAX":
                tensors[op.outputs[0]] = replace(tensors[op.outputs[0]], quantisation=PROBABILITY_GRID)
        for key, weight in self.weights.items():
            op, bias = self.graph.ops[int(key)], self.biases[key]
            scale = self._weight_scale(op, weight, bias).detach()
            axis = 3 if op.kind == "DEPTHWISE_CONV_2D" else 0
            grid = Quantisation(tuple(scale.flatten().cpu().tolist()), (0,) * scale.numel(), axis)
            data = kernels.from_torch_layout(op.kind, weight.detach().cpu().numpy())
            tensors[op.inputs[1]] = replace(tensors[op.inputs[1]], quantisation=grid, data=data)
            tensors[op.inputs[2]] = replace(tensors[op.inputs[2]], data=bias.detach().cpu().numpy().copy())
        return replace(self.graph, tensors=tuple(tensors))

    def _run(self, number: int, op: Op, values: dict[int, Tensor]) -> Tensor:
        operands = [values[index] for index in self.graph.activations_of(op)]
        scales = [self._scale(index) for index in self.graph.activations_of(op)]
        result, activation = op.outputs[0], getattr(op.options, "activation", "none")
        if op.kind in WEIGHTED:
            return self._weighted(str(number), op, operands[0])
        if op.kind == "ADD":
            total = torch.add(operands[0] * scales[0], operands[1], alpha=scales[1])
            exact = device.added(*operands, (scales[0], scales[1]), self._scale(result)) if self._follows else None
            return self._rounded(total, 1.0, result, activation, exact)
        if op.kind == "MUL":
            return self._rounded(operands[0] * operands[1], scales[0] * scales[1], result, activation)
        if op.kind == "MEAN":
            sums, count = kernels.summed(self.graph, op, operands[0])
            exact = self._mean(op, sums, count) if self._follows else None
            return self._rounded(sums, scales[0] / count, result, activation, exact)
        if op.kind in _UNARY:
            return self._looked_up(op, operands[0])
        if op.kind == "AVERAGE_POOL_2D":
            return self._clamped(self._average(op, operands[0]), result, activation)
        if op.kind == "MAX_POOL_2D":
            return self._clamped(kernels.max_pooled(op, operands[0]), result, activation)
        if op.kind == "CONCATENATION":
            return self._clamped(kernels.concatenated(op, operands), result, activation)
        copy = kernels.padded if op.kind == "PAD" else kernels.reshaped
        return copy(self.graph, op, operands[0])

    def _weighted(self, key: str, op: Op, x: Tensor) -> Tensor:
        weight, bias, result = self.weights[key], self.biases[key], op.outputs[0]
        activation = getattr(op.options, "activation", "none")
        if not self.quantises:
            exact = kernels.weighted(op, x, weight, bias)
            self._note_means(key, exact, None)
            return self._rounded(exact, 1.0, result, activation)
        scale = self._weight_scale(op, weight.detach(), bias.detach())
        # In double precision, like export: the bias is the same whole number there.
        steps = scale.flatten().double() * self._scale(op.inputs[0])
        sums = kernels.weighted(op, x, _Steps.apply(weight, scale), _Steps.apply(bias, steps))
        self._note_means(key, sums, steps)
        along = (1, -1, 1, 1) if sums.dim() == 4 else (1, -1)
        return self._rounded(sums, steps.reshape(along), result, activation)

    def _note_means(self, key: str, sums: Tensor, steps: Tensor | None) -> None:
        if self._means is not None:
            means = sums.detach().double().mean([axis for axis in range(sums.dim()) if axis != 1])
            self._means[key] = means if steps is None else means * steps

    def _channel_means(self, x: Tensor) -> dict[str, Tensor]:
        """What each channel of each weighted layer delivers on average, before its activation."""
        self._means = {}
        try:
            with torch.no_grad():
                self(x)
            return self._means
        finally:
            self._means = None

    def correct_biases(self, x: Tensor) -> None:
        """Shift every bias so that on these inputs rounding leaves the mean of its channel where it was.

        Layer by layer, each after those before it (Nagel et al. 2019, arXiv:1906.04721, section 4.2).
        """
        was_training = self.training
        self.eval()
        with self.without_rounding():
            wanted = self._channel_means(x)
        for key, bias in self.biases.items():
            found = self._channel_means(x)[key]
            with torch.no_grad():
                bias += (wanted[key] - found).to(bias.dtype)
        self.train(was_training)

    def _weight_scale(self, op: Op, weight: Tensor, bias: Tensor) -> Tensor:
        """Largest magnitude / 127, and large enough for the bias to fit int32 where a channel has hardly any weight."""
        flat = weight.reshape(1 if op.kind == "FULLY_CONNECTED" else len(weight), -1)
        step = self._scales[self.grid_of[op.inputs[0]]] * _LARGEST_BIAS
        largest_bias = bias.abs().reshape(len(flat), -1).amax(1)
        scale = torch.maximum(flat.abs().amax(1) / 127, largest_bias / step).clamp_min(1e-12)
        return scale.reshape(-1, *[1] * (weight.dim() - 1))

    def _average(self, op: Op, x: Tensor) -> Tensor:
        sums, counts = kernels.pooled_sums(op, x)
        means = sums / counts
        if not self.quantises:
            return means
        zero_point = float(self.zero_points[self.grid_of[op.outputs[0]]])
        rounded = device.averaged(sums.detach(), counts, zero_point)
        return means + (rounded - means).detach()

    def _mean(self, op: Op, sums: Tensor, count: int) -> Tensor:
        before, after = (self._grid(self.grid_of[index]) for index in (op.inputs[0], op.outputs[0]))
        if before == after:
            return device.mean_on_the_same_grid(sums, count, before.zero_point[0])
        return device.mean(sums, count, before.scale[0] / after.scale[0])

    def _looked_up(self, op: Op, x: Tensor) -> Tensor:
        source, result = op.inputs[0], op.outputs[0]
        exact = kernels.unary(op.kind, x * self._scale(source))
        self._look(exact, 1.0, result, "none")
        if not self.quantises:
            return exact
        before, after = self._grid(self.grid_of[source]), self._grid(self.grid_of[result])
        inside = (exact / after.scale[0]).clamp(*self._range(result))
        table = torch.from_numpy(step_table(op.kind, before, after)).to(x.device)
        steps = table[(x.detach() + (before.zero_point[0] + 128)).long()]
        result = inside + (steps - inside).detach()
        stretch, grid_ends = self._learning(op.outputs[0])
        if stretch is None:
            return result
        slope = _slope(exact.detach() / after.scale[0], self._range(op.outputs[0]), grid_ends)
        return result + (stretch - stretch.detach()) * slope

    @property
    def _follows(self) -> bool:
        """Whether every rounding is the device's own."""
        return self.quantises and not self.training and not self._calibrates

    def _entered(self, x: Tensor) -> Tensor:
        """The network's input on its grid, by division as in export."""
        source = self.graph.inputs[0]
        self._look(x, 1.0, source, "none")
        if not self.quantises:
            return x
        return _Rounded.apply(x / self._scale(source), 1.0, *self._range(source), *self._learning(source))

    def _rounded(
        self, x: Tensor, factor: float | Tensor, tensor: int, activation: str, exact: Tensor | None = None
    ) -> Tensor:
        """The steps of the real values x * factor; `exact` is how the device finds them, if it is not by rescaling."""
        self._look(x, factor, tensor, activation)
        if not self.quantises:
            return kernels.activated(x if factor == 1.0 else x * factor, activation)
        steps = factor / self._scale(tensor)
        if self._follows:
            if exact is None:
                exact = device.rescaled(x, _listed(steps), _shape(steps))
            return exact.clamp_(*self._range(tensor, activation)).float()
        steps = steps.float() if isinstance(steps, Tensor) else steps
        return _Rounded.apply(x, steps, *self._range(tensor, activation), *self._learning(tensor))

    def _look(self, x: Tensor, factor: float | Tensor, tensor: int, activation: str) -> None:
        """While calibrating: choose the grid of `tensor`, or note its values where others share the grid."""
        owner = self.grid_of[tensor]
        if tensor not in self._deciding:
            return
        if self._observed is not None and owner in self._shared:
            self._observed[owner].append(sampled(kernels.activated(x * factor, activation)))
        if self._calibrates and owner not in self._shared | self._prescribed:
            self._set_grid(owner, *calibrated_grid(x * factor, activation, self.percentile))

    def _clamped(self, x: Tensor, tensor: int, activation: str) -> Tensor:
        if activation == "none" or not self.quantises:
            return kernels.activated(x, activation)
        return x.clamp(*self._range(tensor, activation))

    def _range(self, tensor: int, activation: str = "none") -> tuple[int, int]:
        grid = self._grid(self.grid_of[tensor])
        return step_range(grid.scale[0], grid.zero_point[0], activation)

    def _grid(self, owner: int) -> Quantisation:
        return Quantisation((float(self._scales[owner]),), (int(self.zero_points[owner]),))

    @property
    def learns_ranges(self) -> bool:
        return self.stretch is not None

    @property
    def _scales(self) -> Tensor:
        return self.scales if self.stretch is None else self.scales * self.stretch.detach().exp()

    def _learning(self, tensor: int) -> tuple[Tensor | None, tuple[int, int]]:
        """What is trained of the scale of a tensor's grid, and the ends of the grid."""
        owner = self.grid_of[tensor]
        zero_point = int(self.zero_points[owner])
        learns = self.stretch is not None and owner not in self._prescribed
        return self.stretch[owner] if learns else None, (-128 - zero_point, 127 - zero_point)

    def _set_grid(self, owner: int, scale: float, zero_point: int) -> None:
        self.scales[owner], self.zero_points[owner] = scale, zero_point

    def _scale(self, tensor: int) -> float:
        """What a step of `tensor` is worth; without rounding values travel as they are."""
        return float(self._scales[self.grid_of[tensor]]) if self.quantises else 1.0


class _Steps(torch.autograd.Function):
    """Whole multiples of the scale, which was chosen so that all values lie inside: every gradient passes."""

    @staticmethod
    def forward(ctx, x, scale):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(scale)
        return (x / scale).round_().float()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return (gradient / ctx.saved_tensors[0]).float(), None


class _Rounded(torch.autograd.Function):
    """x * factor, rounded, from lowest to highest; the gradient passes where it is inside."""

    @staticmethod
    def forward(ctx, x, factor, lowest, highest, stretch, grid_ends):  # type: ignore[no-untyped-def]
        steps = x * factor
        ctx.save_for_backward(steps)
        ctx.factor, ctx.ends, ctx.learns, ctx.grid_ends = factor, (lowest, highest), stretch is not None, grid_ends
        return steps.round().clamp_(lowest, highest)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (steps,) = ctx.saved_tensors
        by_stretch = (gradient * _slope(steps, ctx.ends, ctx.grid_ends)).sum() if ctx.learns else None
        # One vectorised kernel for 'gradient where low < x < high'.
        inside = torch.ops.aten.hardtanh_backward(gradient, steps, *ctx.ends)
        return inside.mul_(ctx.factor), None, None, None, by_stretch, None


def _slope(steps: Tensor, ends: tuple[int, int], grid_ends: tuple[int, int]) -> Tensor:
    """By how many steps each value grows with the logarithm of the grid's scale s: (dy/ds) of y = q s.

    An activation such as ReLU6 may end the range before the grid does: there the value stays, whatever the scale.
    """
    rounded = steps.round().clamp_(*ends)
    lowest, highest = (float(end) if end == last else 0.0 for end, last in zip(ends, grid_ends, strict=True))
    slope = torch.where(steps <= ends[0], lowest, rounded - steps)
    return torch.where(steps >= ends[1], highest, slope)


def _check(graph: Graph) -> None:
    for op in graph.ops:
        if op.kind not in _UNDERSTOOD:
            raise StageError(f"{op.kind} {op.name}: no int8 rounding for it, needed {', '.join(sorted(_UNDERSTOOD))}")
        if op.kind in ("ADD", "MUL", "CONCATENATION") and any(True for _ in graph.constants_of(op)):
            raise StageError(f"{op.kind} {op.name}: an operand is constant, needed computed ones; fold it into a layer")


def _listed(factors: float | Tensor) -> list[float]:
    return factors.flatten().cpu().tolist() if isinstance(factors, Tensor) else [factors]


def _shape(factors: float | Tensor) -> tuple[int, ...]:
    return tuple(factors.shape) if isinstance(factors, Tensor) else ()


def _memory_format(weight: Tensor) -> torch.memory_format:
    return torch.channels_last if weight.dim() == 4 else torch.contiguous_format
