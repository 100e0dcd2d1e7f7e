"""What each torch layer becomes in the Graph.

Padding that TensorFlow Lite's 'same' cannot express becomes a PAD op. An activation is fused into the op before it
where that op can take it and nobody else reads its raw result; else it is an op of its own. SiLU is x * LOGISTIC(x).
Batch normalisation that cannot be folded, behind a concatenation for instance, is a depthwise convolution of one pixel.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn

from stages.graph.from_torch.builder import TracedLayer
from stages.graph.from_torch.walk import Handler, Value, Walk, array, label, nhwc, pair
from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    NoOptions,
    Op,
    Options,
    Padding,
    PoolOptions,
)
from stages.graph.padding import NO_PADS, Pads, zero_pads


def convolution(walk: Walk, node: fx.Node) -> Value:
    conv = walk.modules[str(node.target)]
    assert isinstance(conv, nn.Conv2d)
    if conv.padding_mode != "zeros":
        raise walk.unsupported(node, f"padding mode {conv.padding_mode!r}, needed 'zeros'")
    source = walk.source(node)
    kernel, stride, dilation = pair(conv.kernel_size), pair(conv.stride), pair(conv.dilation)
    same = zero_pads(walk.size(source.tensor), kernel, stride, dilation, "same")
    if isinstance(conv.padding, str):
        own = same if conv.padding == "same" else NO_PADS
    else:
        vertical, horizontal = pair(conv.padding)
        own = (vertical, vertical, horizontal, horizontal)
    tensor, padding = _padding(walk, node, source.tensor, _sum(source.pads, own), same)
    weight = array(conv.weight)  # OIHW in torch
    if conv.groups == 1:
        kind, filters, multiplier = "CONV_2D", weight.transpose(0, 2, 3, 1), 1
    elif conv.groups == conv.in_channels:
        kind, filters = "DEPTHWISE_CONV_2D", weight.transpose(1, 2, 3, 0)
        multiplier = conv.out_channels // conv.in_channels
    else:
        raise walk.unsupported(node, f"{conv.groups} groups, needed 1 or one per input channel")
    return _weighted(walk, node, kind, tensor, filters, ConvOptions(stride, padding, dilation, "none", multiplier))


def linear(walk: Walk, node: fx.Node) -> Value:
    layer = walk.modules[str(node.target)]
    assert isinstance(layer, nn.Linear)
    source = walk.source(node)
    if len(walk.shape(source.tensor)) != 2:
        raise walk.unsupported(node, f"reads {walk.shape(source.tensor)}, needed a vector; flatten in front of it")
    weight = array(layer.weight)
    if source.flattened is not None:
        height, width, channels = source.flattened
        by_map = weight.reshape(-1, channels, height, width)
        weight = by_map.transpose(0, 2, 3, 1).reshape(weight.shape)
        return _weighted(
            walk, node, "FULLY_CONNECTED", source.tensor, weight, ActivationOptions(), positions=height * width
        )
    return _weighted(walk, node, "FULLY_CONNECTED", source.tensor, weight, ActivationOptions())


def norm(walk: Walk, node: fx.Node) -> Value:
    layer = walk.modules[str(node.target)]
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
    value = walk.source(node)
    folded = walk.build.layer_of(value.tensor)
    is_linear = walk.build.activation_of(value.tensor) == "none" and value.pads == NO_PADS
    if layer.running_var is None:
        raise walk.unsupported(node, "has no statistics that could be folded; set track_running_stats=True")
    scale = 1.0 / np.sqrt(array(layer.running_var) + layer.eps)
    shift = -array(layer.running_mean) * scale  # type: ignore[arg-type]
    if layer.weight is not None:
        gamma, beta = array(layer.weight), array(layer.bias)
        scale, shift = scale * gamma, shift * gamma + beta
    if folded is not None and folded.norm is None and is_linear and walk.is_read_once(node):
        walk.build.fold(folded, scale, shift, str(node.target))
        return value
    if len(nhwc(node)) != 4:
        raise walk.unsupported(node, "not directly behind a convolution or linear layer, where it could be folded")
    source, name = walk.plain(node.all_input_nodes[0]), str(node.target)
    op = Op("DEPTHWISE_CONV_2D", name, (source,), (walk.build.tensor(name, nhwc(node)),), ConvOptions(padding="valid"))
    return Value(walk.build.weighted_op(TracedLayer(-1, None, name), op, scale.reshape(1, 1, 1, -1), shift))


def rectifier(walk: Walk, node: fx.Node) -> Value:
    module = walk.modules.get(str(node.target)) if node.op == "call_module" else None
    six = isinstance(module, nn.ReLU6) or node.target is F.relu6
    value = walk.source(node)
    can_fuse = value.pads == NO_PADS and walk.build.activation_of(value.tensor) == "none"
    if can_fuse and walk.is_read_once(node):
        walk.build.fuse(value.tensor, "relu6" if six else "relu")
        return value
    return _standalone(walk, node, "RELU6" if six else "RELU")


def hard_swish(walk: Walk, node: fx.Node) -> Value:
    return _standalone(walk, node, "HARD_SWISH")


def sigmoid(walk: Walk, node: fx.Node) -> Value:
    source = walk.plain(node.all_input_nodes[0])
    gate = walk.emit(node, "LOGISTIC", (source,), walk.shape(source), NoOptions())
    return replace(gate, flattened=walk.source(node).flattened)


def silu(walk: Walk, node: fx.Node) -> Value:
    source, shape = walk.plain(node.all_input_nodes[0]), nhwc(node)
    gate = walk.build.op("LOGISTIC", f"{label(node)}.logistic", (source,), shape, NoOptions())
    result = walk.emit(node, "MUL", (source, gate), shape, ActivationOptions())
    return replace(result, flattened=walk.source(node).flattened)


def pad(walk: Walk, node: fx.Node) -> Value:
    if node.op == "call_module":
        left, right, top, bottom = walk.modules[str(node.target)].padding  # type: ignore[misc]
    else:
        amounts: Any = node.args[1] if len(node.args) > 1 else node.kwargs["pad"]
        value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
        mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")
        if value not in (None, 0, 0.0) or mode != "constant" or len(amounts) != 4:
            raise walk.unsupported(node, "not zero padding of height and width")
        left, right, top, bottom = amounts
    pads: Pads = (int(top), int(bottom), int(left), int(right))
    if min(pads) < 0:
        raise walk.unsupported(node, "negative padding cuts the map")
    source = walk.source(node)
    return replace(source, pads=_sum(source.pads, pads))


def pool(walk: Walk, node: fx.Node) -> Value:
    layer = walk.modules[str(node.target)] if node.op == "call_module" else _pooling_module(node)
    assert isinstance(layer, nn.AvgPool2d | nn.MaxPool2d)
    averages = isinstance(layer, nn.AvgPool2d)
    kernel, stride = pair(layer.kernel_size), pair(layer.stride)
    vertical, horizontal = pair(layer.padding)
    if layer.ceil_mode or (isinstance(layer, nn.MaxPool2d) and pair(layer.dilation) != (1, 1)):
        raise walk.unsupported(node, "ceil mode or dilation")
    if isinstance(layer, nn.MaxPool2d) and layer.return_indices:
        raise walk.unsupported(node, "returns indices, too; set return_indices=False")
    if isinstance(layer, nn.AvgPool2d) and layer.divisor_override is not None:
        raise walk.unsupported(node, "a divisor of its own")
    own: Pads = (vertical, vertical, horizontal, horizontal)
    source = walk.plain(node.all_input_nodes[0])
    padding: Padding = "valid"
    if own != NO_PADS:
        counts_zeros = isinstance(layer, nn.AvgPool2d) and layer.count_include_pad
        if not counts_zeros and own == zero_pads(walk.size(source), kernel, stride, (1, 1), "same"):
            padding = "same"  # leaves what is outside the map out, as torch does
        elif counts_zeros or (not averages and walk.build.is_rectified(source)):
            # A zero counts in this average; and it never beats the largest value of a map without negative ones.
            source = walk.padded(f"{label(node)}.pad", source, own)
        else:
            raise walk.unsupported(node, f"padding {own}, which is neither 'same' nor zeros")
    kind = "AVERAGE_POOL_2D" if averages else "MAX_POOL_2D"
    return walk.emit(node, kind, (source,), nhwc(node), PoolOptions(kernel, stride, padding))


def _pooling_module(node: fx.Node) -> nn.Module:
    """The module that does what a call of F.max_pool2d or F.avg_pool2d does."""
    module, names = (
        (nn.AvgPool2d, ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"))
        if node.target is F.avg_pool2d
        else (nn.MaxPool2d, ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"))
    )
    named: dict[str, Any] = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
    given = {name: value for name, value in named.items() if name != "input"}
    return module(**fx.node.map_arg(given, lambda size: size.meta["number"]))  # type: ignore[arg-type]


def global_pool(walk: Walk, node: fx.Node) -> Value:
    if node.op == "call_module" or node.target is F.adaptive_avg_pool2d:
        module = walk.modules.get(str(node.target))
        size: Any = module.output_size if module is not None else node.args[1]
        if size not in (1, (1, 1), [1, 1]):
            raise walk.unsupported(node, f"output size {size}, needed 1")
        keeps_map = True
    else:
        axes: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if not isinstance(axes, tuple | list) or sorted(axis % 4 for axis in axes) != [2, 3]:
            raise walk.unsupported(node, f"mean over axes {axes}, needed height and width")
        keeps_map = bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False))
    source = walk.plain(walk.operand(node))
    height, width, channels = walk.shape(source)[1:]
    options = PoolOptions((height, width), (height, width))
    pooled = walk.emit(node, "AVERAGE_POOL_2D", (source,), (1, 1, 1, channels), options)
    return pooled if keeps_map else _reshaped(walk, node, pooled.tensor)


def flatten(walk: Walk, node: fx.Node) -> Value:
    source = walk.plain(walk.operand(node))
    if len(nhwc(node)) != 2:
        raise walk.unsupported(node, "does not flatten everything but the batch")
    return _reshaped(walk, node, source)


def view(walk: Walk, node: fx.Node) -> Value:
    """Flattens, or makes a map of one pixel of a vector; sizes have to follow the channels, which pruning changes."""
    shape: Any = node.args[1:] if len(node.args) > 1 else (node.kwargs["shape"],)
    sizes = shape[0] if isinstance(shape[0], tuple | list) else shape
    numbers = [size for size in sizes if isinstance(size, int) and size not in (-1, 1)]
    if numbers or sizes[0] == 1:
        found = numbers[0] if numbers else 1
        raise walk.unsupported(node, f"a size of {found} that is written out; use torch.flatten(x, 1) or x.size(...)")
    source, target = walk.plain(walk.operand(node)), nhwc(node)
    if len(target) == 2:
        return _reshaped(walk, node, source)
    if len(target) != 4 or target[1:3] != (1, 1) or walk.source(node).flattened is not None:
        raise walk.unsupported(node, f"makes {target}; needed a vector, or a map of one pixel of a pooled one")
    return Value(walk.build.reshape(f"{label(node)}.reshape", source, target))


def add(walk: Walk, node: fx.Node) -> Value:
    summands = _operands(walk, node, "sum")
    # A map plus one column, row or value per channel; the map is the first operand.
    larger, smaller = sorted(summands, key=lambda index: -walk.build.tensors[index].elements)
    shape, other = walk.shape(larger), walk.shape(smaller)
    repeats = len(other) == len(shape) and all(own in (1, side) for own, side in zip(other, shape, strict=True))
    if not repeats or other[-1] != shape[-1]:
        raise walk.unsupported(node, f"shapes {shape} and {other}, needed equal ones or sides of 1, and equal channels")
    return walk.emit(node, "ADD", summands if shape == other else (larger, smaller), shape, ActivationOptions())


def multiply(walk: Walk, node: fx.Node) -> Value:
    factors = _operands(walk, node, "product")
    # A map times one gate per channel; the map is the first operand.
    larger, smaller = sorted(factors, key=lambda index: -walk.build.tensors[index].elements)
    shape, gate = walk.shape(larger), walk.shape(smaller)
    if gate not in (shape, (*(1 for _ in shape[:-1]), shape[-1])):
        raise walk.unsupported(node, f"shapes {shape} and {gate}, needed equal ones or one value per channel")
    return walk.emit(node, "MUL", (larger, smaller), shape, ActivationOptions())


def concatenate(walk: Walk, node: fx.Node) -> Value:
    parts: Any = node.args[0] if node.args else node.kwargs["tensors"]
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis", 0))
    axis = int(given)
    rank = len(nhwc(node))
    if axis % rank != 1 or any(walk.values[part].flattened is not None for part in parts):
        raise walk.unsupported(node, f"along axis {axis}, needed 1, the channels of maps")
    inputs = tuple(walk.plain(part) for part in parts)
    return walk.emit(node, "CONCATENATION", inputs, nhwc(node), ConcatOptions(rank - 1))


def identity(walk: Walk, node: fx.Node) -> Value:
    return walk.source(node)


def _weighted(
    walk: Walk, node: fx.Node, kind: str, source: int, filters: np.ndarray, options: Options, positions: int = 1
) -> Value:
    path = str(node.target)
    name = path.removesuffix(".conv")
    bias: Any = walk.modules[path].bias
    op = Op(kind, name, (source,), (walk.build.tensor(name, nhwc(node)),), options)
    layer = TracedLayer(-1, path, None, positions)
    return Value(walk.build.weighted_op(layer, op, filters, None if bias is None else array(bias)))


def _padding(walk: Walk, node: fx.Node, source: int, pads: Pads, same: Pads) -> tuple[int, Padding]:
    """The tensor to read and how to pad it; what is neither 'same' nor 'valid' is padded by an op of its own."""
    if pads == same:
        return source, "same"
    if pads == NO_PADS:
        return source, "valid"
    return walk.padded(f"{label(node).removesuffix('.conv')}.pad", source, pads), "valid"


def _standalone(walk: Walk, node: fx.Node, kind: str) -> Value:
    """An activation as an op of its own."""
    source = walk.plain(node.all_input_nodes[0])
    result = walk.emit(node, kind, (source,), walk.shape(source), NoOptions())
    return replace(result, flattened=walk.source(node).flattened)


def _reshaped(walk: Walk, node: fx.Node, source: int) -> Value:
    shape = walk.shape(source)
    flattened = (shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[1] * shape[2] > 1 else None
    return Value(walk.build.reshape(f"{label(node)}.reshape", source), flattened=flattened)


def _operands(walk: Walk, node: fx.Node, what: str) -> tuple[int, int]:
    if len(node.args) != 2 or node.kwargs or not all(isinstance(value, fx.Node) for value in node.args):
        raise walk.unsupported(node, f"not the {what} of two tensors")
    if any(walk.values[value].flattened is not None for value in node.args):  # type: ignore[index]
        raise walk.unsupported(node, f"{what} of flattened maps; compute it before flattening")
    first, second = (walk.plain(value) for value in node.args)
    return first, second


def _sum(first: Pads, second: Pads) -> Pads:
    return first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3]


HANDLERS: dict[tuple[Any, ...], Handler] = {
    (nn.Conv2d,): convolution,
    (nn.Linear,): linear,
    (nn.BatchNorm2d, nn.BatchNorm1d): norm,
    (nn.ReLU, nn.ReLU6, F.relu, F.relu6, torch.relu, "relu", "relu_"): rectifier,
    (nn.Hardswish, F.hardswish): hard_swish,
    (nn.Sigmoid, torch.sigmoid, F.sigmoid, "sigmoid"): sigmoid,
    (nn.SiLU, F.silu): silu,
    (nn.ZeroPad2d, F.pad): pad,
    (nn.AvgPool2d, nn.MaxPool2d, F.avg_pool2d, F.max_pool2d, torch.max_pool2d): pool,
    (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d, torch.mean, "mean"): global_pool,
    (nn.Flatten, torch.flatten, "flatten"): flatten,
    (torch.reshape, "reshape", "view"): view,
    (operator.add, operator.iadd, torch.add, "add"): add,
    (operator.mul, operator.imul, torch.mul, "mul"): multiply,
    (torch.cat, torch.concat): concatenate,
    (nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, "contiguous"): identity,
}
