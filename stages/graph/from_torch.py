"""A torch network as a Graph: TensorFlow Lite's ops, NHWC, batch normalisation folded, activations fused.

The network is traced with torch.fx. Understood are Conv2d (plain and depthwise) and Linear, each with an optional
BatchNorm and ReLU/ReLU6 behind it, zero padding before a convolution, average and max pooling, the mean over the map,
addition and flattening. Anything else is refused with a StageError that names the layer's path, as is padding that
TensorFlow Lite cannot express as 'same' or 'valid'.

Folding uses the running statistics, as in eval mode, whatever mode the network is in:
w' = w * gamma / sqrt(var + eps), b' = beta + (b - mean) * gamma / sqrt(var + eps).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from pipeline.errors import StageError
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, Options, Padding, PoolOptions, SoftmaxOptions
from stages.graph.padding import NO_PADS, Pads, same_pads
from stages.graph.torch_builder import GraphBuilder, TracedLayer


@dataclass(frozen=True)
class TorchTrace:
    """The graph, and how it hangs together with the network it was made from (whose modules `module` shares)."""

    graph: Graph
    layers: tuple[TracedLayer, ...]
    module: fx.GraphModule


@dataclass(frozen=True)
class _Value:
    """What an fx node stands for: a tensor of the graph, perhaps still to be padded, perhaps a flattened map."""

    tensor: int
    pads: Pads = NO_PADS
    flattened: tuple[int, int, int] | None = None  # H, W, C of a map that torch flattens as CHW, we as HWC


def graph_from_torch(net: nn.Module, input_shape_hwc: tuple[int, int, int], *, softmax: bool = True) -> Graph:
    """The network as a Graph of float32 tensors; `softmax` appends a SOFTMAX to the logits."""
    return trace(net, input_shape_hwc, softmax=softmax).graph


def trace(net: nn.Module, input_shape_hwc: tuple[int, int, int], *, softmax: bool = True) -> TorchTrace:
    """The network as a Graph, together with the modules that each op came from."""
    height, width, channels = input_shape_hwc
    was_training = net.training
    x = torch.zeros(1, channels, height, width, dtype=next(net.parameters()).dtype)
    try:
        module = fx.symbolic_trace(net)
        with torch.no_grad():
            # In eval mode, so that the shape pass leaves the running statistics alone.
            ShapeProp(module.eval()).propagate(x)
    except Exception as error:
        raise StageError(
            f"{type(net).__name__}: torch.fx cannot trace it for input {input_shape_hwc} ({error}); "
            f"avoid data-dependent control flow and check the input shape"
        ) from error
    finally:
        net.train(was_training)
    walk = _Walk(module)
    for node in module.graph.nodes:
        walk.visit(node)
    return walk.finish(softmax)


class _Walk:
    """Goes through the fx nodes in order and tells the builder what they mean."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.modules = dict(module.named_modules())
        self.build = GraphBuilder()
        self.values: dict[fx.Node, _Value] = {}
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.values[node] = _Value(self.build.tensor(node.name, nhwc(node)))
            self.inputs.append(self.values[node].tensor)
        elif node.op == "output":
            self.outputs = [self.plain(value, node) for value in node.all_input_nodes]
        elif node.op in ("call_module", "call_function", "call_method"):
            self.values[node] = self.handler(node)(self, node)
        else:
            raise self.unsupported(node)

    def handler(self, node: fx.Node) -> Callable[[_Walk, fx.Node], _Value]:
        key = type(self.modules[str(node.target)]) if node.op == "call_module" else node.target
        for keys, handle in _HANDLERS.items():
            if key in keys:
                return handle
        raise self.unsupported(node)

    def finish(self, softmax: bool) -> TorchTrace:
        outputs = tuple(self.outputs)
        if softmax:
            shape = self.build.tensors[outputs[0]].shape
            outputs = (self.build.op("SOFTMAX", "softmax", (outputs[0],), shape, SoftmaxOptions()),)
        graph = self.build.graph(tuple(self.inputs), outputs)
        return TorchTrace(graph, tuple(self.build.layers), self.module)

    def convolution(self, node: fx.Node) -> _Value:
        conv = self.modules[str(node.target)]
        assert isinstance(conv, nn.Conv2d)
        source = self.source(node)
        size = self.build.tensors[source.tensor].shape[1:3]
        kernel, stride, dilation = _pair(conv.kernel_size), _pair(conv.stride), _pair(conv.dilation)
        if conv.padding == "same":
            own = same_pads((size[0], size[1]), kernel, stride, dilation)
        elif conv.padding == "valid":
            own = NO_PADS
        else:
            vertical, horizontal = _pair(conv.padding)
            own = (vertical, vertical, horizontal, horizontal)
        pads = tuple(outer + inner for outer, inner in zip(source.pads, own, strict=True))
        padding = self.padding_of(node, pads, same_pads((size[0], size[1]), kernel, stride, dilation))
        weight = _array(conv.weight)  # OIHW in torch
        if conv.groups == 1:
            kind, filters, multiplier = "CONV_2D", weight.transpose(0, 2, 3, 1), 1
        elif conv.groups == conv.in_channels:
            kind, filters = "DEPTHWISE_CONV_2D", weight.transpose(1, 2, 3, 0)
            multiplier = conv.out_channels // conv.in_channels
        else:
            raise self.unsupported(node, f"{conv.groups} groups, needed 1 or one per input channel")
        if conv.padding_mode != "zeros":
            raise self.unsupported(node, f"padding mode {conv.padding_mode!r}, needed 'zeros'")
        options = ConvOptions(stride, padding, dilation, "none", multiplier)
        return self.weighted(node, kind, source.tensor, filters, options)

    def linear(self, node: fx.Node) -> _Value:
        layer = self.modules[str(node.target)]
        assert isinstance(layer, nn.Linear)
        source = self.source(node)
        weight = _array(layer.weight)
        if source.flattened is not None:
            height, width, channels = source.flattened
            by_map = weight.reshape(-1, channels, height, width)
            weight = by_map.transpose(0, 2, 3, 1).reshape(weight.shape)
        return self.weighted(node, "FULLY_CONNECTED", source.tensor, weight, ActivationOptions())

    def weighted(self, node: fx.Node, kind: str, source: int, filters: np.ndarray, options: Options) -> _Value:
        path = str(node.target)
        name = path.removesuffix(".conv")
        bias: Any = self.modules[path].bias
        op = Op(kind, name, (source,), (self.build.tensor(name, nhwc(node)),), options)
        layer = TracedLayer(-1, path, None, node.name)
        return _Value(self.build.weighted_op(layer, op, filters, None if bias is None else _array(bias)))

    def norm(self, node: fx.Node) -> _Value:
        norm = self.modules[str(node.target)]
        assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
        value = self.fusable(node)
        layer = self.build.layer_of(value.tensor)
        is_linear = self.build.activation_of(value.tensor) == "none" and value.pads == NO_PADS
        if layer is None or layer.norm is not None or not is_linear or norm.running_var is None:
            raise self.unsupported(node, "not directly behind a convolution or linear layer, where it could be folded")
        scale = 1.0 / np.sqrt(_array(norm.running_var) + norm.eps)
        shift = -_array(norm.running_mean) * scale  # type: ignore[arg-type]
        if norm.weight is not None:
            gamma, beta = _array(norm.weight), _array(norm.bias)
            scale, shift = scale * gamma, shift * gamma + beta
        self.build.fold(layer, scale, shift, str(node.target), node.name)
        return value

    def activation(self, node: fx.Node) -> _Value:
        value = self.fusable(node)
        if self.build.activation_of(value.tensor) != "none":
            raise self.unsupported(node, "not directly behind an op that can take an activation")
        self.build.fuse(value.tensor, "relu6" if _is_relu6(node, self.modules) else "relu", node.name)
        return value

    def pad(self, node: fx.Node) -> _Value:
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            left, right, top, bottom = module.padding  # type: ignore[misc]
        else:
            amounts = node.args[1] if len(node.args) > 1 else node.kwargs["pad"]
            value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
            if value not in (None, 0, 0.0) or node.kwargs.get("mode", "constant") != "constant" or len(amounts) != 4:  # type: ignore[arg-type]
                raise self.unsupported(node, "not zero padding of height and width")
            left, right, top, bottom = amounts  # type: ignore[misc]
        source = self.source(node)
        if source.pads != NO_PADS:
            raise self.unsupported(node, "padding behind padding")
        return replace(source, pads=(int(top), int(bottom), int(left), int(right)))

    def pool(self, node: fx.Node) -> _Value:
        pool = self.modules[str(node.target)]
        assert isinstance(pool, nn.AvgPool2d | nn.MaxPool2d)
        source = self.source(node)
        size = self.build.tensors[source.tensor].shape[1:3]
        kernel, stride = _pair(pool.kernel_size), _pair(pool.stride)
        vertical, horizontal = _pair(pool.padding)
        padded = vertical or horizontal
        if (
            pool.ceil_mode
            or source.pads != NO_PADS
            or (isinstance(pool, nn.AvgPool2d) and padded and pool.count_include_pad)
        ):
            raise self.unsupported(node, "ceil mode, or zeros that count in the average")
        own: Pads = (vertical, vertical, horizontal, horizontal)
        padding = self.padding_of(node, own, same_pads((size[0], size[1]), kernel, stride, (1, 1)))
        kind = "MAX_POOL_2D" if isinstance(pool, nn.MaxPool2d) else "AVERAGE_POOL_2D"
        # Without padding 'valid' says it more plainly, and it is what whole-map pooling has to be.
        options = PoolOptions(kernel, stride, "valid" if not padded else padding)
        return self.emit(node, kind, (source.tensor,), nhwc(node), options)

    def global_pool(self, node: fx.Node) -> _Value:
        if node.op == "call_module" or node.target is F.adaptive_avg_pool2d:
            module = self.modules.get(str(node.target))
            size: Any = module.output_size if module is not None else node.args[1]
            if size not in (1, (1, 1), [1, 1]):
                raise self.unsupported(node, f"output size {size}, needed 1")
            keeps_map = True
        else:
            axes: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
            if not isinstance(axes, tuple | list) or sorted(axis % 4 for axis in axes) != [2, 3]:
                raise self.unsupported(node, f"mean over axes {axes}, needed height and width")
            keeps_map = bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False))
        source = self.plain(node.args[0], node)
        height, width, channels = self.build.tensors[source].shape[1:]
        options = PoolOptions((height, width), (height, width))
        pooled = self.emit(node, "AVERAGE_POOL_2D", (source,), (1, 1, 1, channels), options)
        return pooled if keeps_map else self.reshape(node, pooled.tensor)

    def flatten(self, node: fx.Node) -> _Value:
        source = self.plain(node.args[0], node)
        if len(nhwc(node)) != 2:
            raise self.unsupported(node, "does not flatten everything but the batch")
        return self.reshape(node, source)

    def reshape(self, node: fx.Node, source: int) -> _Value:
        shape = self.build.tensors[source].shape
        flattened = (shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[1] * shape[2] > 1 else None
        return _Value(self.build.reshape(f"{_label(node)}.reshape", source), flattened=flattened)

    def add(self, node: fx.Node) -> _Value:
        if len(node.all_input_nodes) != 2 or len(node.args) != 2 or node.kwargs:
            raise self.unsupported(node, "not the sum of two tensors")
        summands = tuple(self.plain(value, node) for value in node.args)
        shapes = [self.build.tensors[index].shape for index in summands]
        if shapes[0] != shapes[1]:
            raise self.unsupported(node, f"shapes {shapes[0]} and {shapes[1]}, needed equal ones")
        return self.emit(node, "ADD", summands, shapes[0], ActivationOptions())

    def identity(self, node: fx.Node) -> _Value:
        return self.source(node)

    def emit(
        self, node: fx.Node, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: Options
    ) -> _Value:
        return _Value(self.build.op(kind, _label(node), inputs, shape, options))

    def source(self, node: fx.Node) -> _Value:
        return self.values[node.all_input_nodes[0]]

    def plain(self, value: Any, node: fx.Node) -> int:
        found = self.values[value]
        if found.pads != NO_PADS:
            raise self.unsupported(node, "its input is padded, which only a convolution can take in")
        return found.tensor

    def fusable(self, node: fx.Node) -> _Value:
        """The value that `node` may be fused into: nobody else may read it, under any of its names."""
        value = self.values[node.all_input_nodes[0]]
        if any(len(other.users) != 1 for other, known in self.values.items() if known.tensor == value.tensor):
            raise self.unsupported(node, "its input is also read elsewhere, so it cannot be fused")
        return value

    def padding_of(self, node: fx.Node, pads: tuple[int, ...], same: Pads) -> Padding:
        if tuple(pads) == same:
            return "same"
        if tuple(pads) == NO_PADS:
            return "valid"
        needed = f"padding (top, bottom, left, right) {tuple(pads)}, needed {same} ('same') or none ('valid')"
        raise self.unsupported(node, needed)

    def unsupported(self, node: fx.Node, why: str = "") -> StageError:
        what = type(self.modules[str(node.target)]).__name__ if node.op == "call_module" else str(node.target)
        reason = (
            why or "no such layer is supported; rewrite it with convolution, batch norm, ReLU, pooling, add or linear"
        )
        return StageError(f"{_label(node)} ({what}): {reason}")


def nhwc(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's result with the channels last."""
    shape = tuple(node.meta["tensor_meta"].shape)
    return (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else shape


def _label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _pair(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple | list) else (int(value), int(value))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def _is_relu6(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], nn.ReLU6)
    return node.target is F.relu6


_HANDLERS: dict[tuple[Any, ...], Callable[[_Walk, fx.Node], _Value]] = {
    (nn.Conv2d,): _Walk.convolution,
    (nn.Linear,): _Walk.linear,
    (nn.BatchNorm2d, nn.BatchNorm1d): _Walk.norm,
    (nn.ReLU, nn.ReLU6, F.relu, F.relu6, torch.relu, "relu"): _Walk.activation,
    (nn.ZeroPad2d, F.pad): _Walk.pad,
    (nn.AvgPool2d, nn.MaxPool2d): _Walk.pool,
    (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d, torch.mean, "mean"): _Walk.global_pool,
    (nn.Flatten, torch.flatten, "flatten"): _Walk.flatten,
    (operator.add, operator.iadd, torch.add, "add"): _Walk.add,
    (nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, "contiguous"): _Walk.identity,
}
