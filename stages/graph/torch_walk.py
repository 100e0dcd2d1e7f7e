"""Going through a traced torch network node by node: which tensor of the graph each fx node stands for.

What a layer becomes is decided by a handler (`torch_layers`); here is what the handlers share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, fx

from pipeline.errors import StageError
from stages.graph.graph import Graph, NoOptions, Options, SoftmaxOptions
from stages.graph.padding import NO_PADS, Pads
from stages.graph.torch_builder import GraphBuilder

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
        if node.op == "placeholder":
            self.values[node] = Value(self.build.tensor(node.name, nhwc(node)))
            self.inputs.append(self.values[node].tensor)
        elif node.op == "output":
            self.outputs = [self.plain(value) for value in node.all_input_nodes]
        else:
            key = type(self.modules[str(node.target)]) if node.op == "call_module" else node.target
            if node.op == "get_attr" or key not in self.handlers:
                raise self.unsupported(node)
            self.values[node] = self.handlers[key](self, node)

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
        what = type(self.modules[str(node.target)]).__name__ if node.op == "call_module" else str(node.target)
        return StageError(
            f"{label(node)} ({what}): {why or f'no such layer is supported; rewrite it with {SUPPORTED}'}"
        )


def nhwc(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's result with the channels last."""
    shape = tuple(node.meta["tensor_meta"].shape)
    return (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else shape


def label(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def pair(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple | list) else (int(value), int(value))


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
