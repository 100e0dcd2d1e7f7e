"""Going through a traced torch network node by node: which tensor of the graph each fx node stands for.

What a layer becomes is decided by a handler (`layers`); here is what the handlers share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from pipeline.errors import StageError
from stages.graph.from_torch.builder import GraphBuilder
from stages.graph.graph import Graph, NoOptions, Options, SoftmaxOptions
from stages.graph.padding import NO_PADS, Pads

_COMPUTE = ("forward", "_conv_forward")  # methods that make a layer what it is
_VIEWS = (torch.flatten, torch.reshape, "flatten", "view", "reshape")
SUPPORTED = "convolution, batch norm, ReLU, ReLU6, Hardswish, Sigmoid, SiLU, pooling, add, mul, cat, flatten or linear"


@dataclass(frozen=True)
class Value:
    """What an fx node stands for: a tensor of the graph, perhaps still to be padded, perhaps a flattened map."""

    tensor: int
    pads: Pads = NO_PADS
    flattened: tuple[int, int, int] | None = None  # H, W, C of a map that torch flattens as CHW, we as HWC


Handler = Callable[["Walk", fx.Node], Value]


class Walk:
    """Visits the fx nodes in order and tells the builder what they mean."""

    def __init__(self, module: fx.GraphModule, handlers: Mapping[tuple[Any, ...], Handler]) -> None:
        self.modules = dict(module.named_modules())
        self.handlers = {key: handle for keys, handle in handlers.items() for key in keys}
        self.build = GraphBuilder()
        self.values: dict[fx.Node, Value] = {}
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def visit(self, node: fx.Node) -> None:
        if node.op == "placeholder" and "tensor_meta" not in node.meta:
            return  # an optional argument of the forward, left out; whoever reads it will look at it
        if node.op == "placeholder":
            self.values[node] = Value(self.build.tensor(node.name, nhwc(node)))
            self.inputs.append(self.values[node].tensor)
        elif node.op == "output":
            self.outputs = [self.plain(value) for value in node.all_input_nodes]
            if not isinstance(node.args[0], fx.Node):
                kind = type(node.args[0]).__name__.removeprefix("immutable_")
                found = f"a {kind}" if len(self.outputs) == 1 else f"{len(self.outputs)} tensors"
                raise StageError(f"the network returns {found}, needed one tensor; return only the logits")
        elif "tensor_meta" in node.meta:  # else it is a number, such as a size; whoever reads it will look at it
            key = layer_type(self.modules[str(node.target)]) if node.op == "call_module" else node.target
            if node.op == "get_attr" or key not in self.handlers:
                raise self.unsupported(node)
            self._refuse_overwritten(node)
            if not node.users:
                raise self.unsupported(node, "nothing reads its result; remove it")
            try:
                self.values[node] = self.handlers[key](self, node)
            except (KeyError, IndexError, TypeError) as error:  # a call in a form that no handler thought of
                raise self.unsupported(node, "its arguments are not understood; write it in a plainer way") from error

    def _refuse_overwritten(self, node: fx.Node) -> None:
        """Our ops never change an operand: one that torch changes in place must not be read again."""
        if not _works_in_place(node, self.modules):
            return
        later = iter(node.graph.nodes)
        for passed in later:
            if passed is node:
                break
        changed = self._same_memory(node.all_input_nodes[0])
        for reader in later:
            reads = "tensor_meta" in reader.meta and not changed.isdisjoint(reader.all_input_nodes)
            if reads and reader not in changed:
                raise self.unsupported(
                    node, f"works in place on what {place(reader)} reads afterwards; set inplace=False"
                )

    def _same_memory(self, node: fx.Node) -> set[fx.Node]:
        """The node and those that only pass its tensor on, under another shape perhaps."""
        while self._passes_on(node):
            node = node.all_input_nodes[0]
        found = {node}
        for other in node.graph.nodes:
            if self._passes_on(other) and other.all_input_nodes[0] in found:
                found.add(other)
        return found

    def _passes_on(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return isinstance(self.modules[str(node.target)], nn.Identity | nn.Dropout | nn.Dropout2d | nn.Flatten)
        return node.target in (*_VIEWS, F.dropout, "contiguous")

    def finished(self, softmax: bool) -> Graph:
        """The graph, with a SOFTMAX behind the logits if asked for."""
        outputs = tuple(self.outputs)
        if softmax:
            shape = self.build.tensors[outputs[0]].shape
            outputs = (self.build.op("SOFTMAX", "softmax", (outputs[0],), shape, SoftmaxOptions()),)
        return self.build.graph(tuple(self.inputs), outputs)

    def source(self, node: fx.Node) -> Value:
        """What the node reads first."""
        return self.values[node.all_input_nodes[0]]

    @staticmethod
    def operand(node: fx.Node) -> Any:
        """The tensor that a function or a layer is called with, by position or by name."""
        return node.args[0] if node.args else node.kwargs["input"]

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.build.tensors[tensor].shape

    def size(self, tensor: int) -> tuple[int, int]:
        """Height and width of a map."""
        shape = self.shape(tensor)
        return shape[1], shape[2]

    def plain(self, node: Any) -> int:
        """The node's tensor; padding that no convolution took in becomes a PAD."""
        value = self.values[node]
        return value.tensor if value.pads == NO_PADS else self.padded(f"{label(node)}.pad", value.tensor, value.pads)

    def padded(self, name: str, source: int, pads: Pads) -> int:
        """The tensor with zeros around its map."""
        top, bottom, left, right = pads
        amounts = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
        _, height, width, channels = self.shape(source)
        operand = self.build.tensor(f"{name}.paddings", amounts.shape, amounts)
        shape = (1, height + top + bottom, width + left + right, channels)
        return self.build.op("PAD", name, (source, operand), shape, NoOptions())

    def emit(
        self, node: fx.Node, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: Options
    ) -> Value:
        return Value(self.build.op(kind, label(node), inputs, shape, options))

    def is_read_once(self, node: fx.Node) -> bool:
        """Whether nobody else reads what `node` reads, under any of its names: then it may be fused."""
        tensor = self.source(node).tensor
        return all(len(other.users) == 1 for other, known in self.values.items() if known.tensor == tensor)

    def unsupported(self, node: fx.Node, why: str = "") -> StageError:
        what = f" ({type(self.modules[str(node.target)]).__name__})" if node.op == "call_module" else ""
        return StageError(f"{place(node)}{what}: {why or f'no such layer is supported; rewrite it with {SUPPORTED}'}")


def nhwc(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's result with the channels last."""
    shape = tuple(node.meta["tensor_meta"].shape)
    return (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else shape


def label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def place(node: fx.Node) -> str:
    """Where a person finds a node: the path of its module, or of the one whose forward calls the function."""
    if node.op == "call_module":
        return str(node.target)
    function = getattr(node.target, "__name__", str(node.target))
    called = node.name.rstrip("_0123456789") if function == "fn" else function  # torch calls some of its own 'fn'
    stack = node.meta.get("nn_module_stack")
    return f"{next(reversed(stack.values()))[0] if stack else 'the network'}, {called} in its forward"


def _works_in_place(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    return str(node.target).endswith("_") or bool(node.kwargs.get("inplace"))


def pair(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple | list) else (int(value), int(value))


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def layer_type(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch.nn whose forward a module has: its own, or the one that it inherits unchanged."""
    inherited = next((each for each in type(module).__mro__ if each.__module__.startswith("torch.nn.modules")), None)
    if inherited in (None, nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict):
        return None
    is_same = all(getattr(type(module), name, None) is getattr(inherited, name, None) for name in _COMPUTE)
    return inherited if is_same or getattr(module, "computes_like_its_base", False) else None
