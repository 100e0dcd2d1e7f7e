"""A torch network as a Graph: TensorFlow Lite's ops, NHWC, batch normalisation folded, activations fused.

The network is traced with torch.fx. Understood are Conv2d (plain and depthwise, dilated too), Linear and BatchNorm;
ReLU, ReLU6, Hardswish, SiLU and Sigmoid; zero padding; average and max pooling, the mean over the map; addition,
multiplication and concatenation; flattening, also by view and reshape. Anything else is refused with a StageError that
names the layer's path. `layers` says what each layer becomes.

Batch normalisation is folded where it directly follows a layer that nobody else reads. Folding uses the running
statistics, as in eval mode, whatever mode the network is in:
w' = w * gamma / sqrt(var + eps), b' = beta + (b - mean) * gamma / sqrt(var + eps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from pipeline.errors import StageError
from stages.graph.from_torch.builder import TracedLayer
from stages.graph.from_torch.layers import HANDLERS
from stages.graph.from_torch.walk import Walk, layer_type
from stages.graph.graph import Graph


@dataclass(frozen=True)
class TorchTrace:
    """The graph, and how it hangs together with the network it was made from (whose modules `module` shares)."""

    graph: Graph
    layers: tuple[TracedLayer, ...]
    module: fx.GraphModule


def graph_from_torch(net: nn.Module, input_shape_hwc: tuple[int, int, int], *, softmax: bool = True) -> Graph:
    """The network as a Graph of float32 tensors; `softmax` appends a SOFTMAX to the logits."""
    return trace(net, input_shape_hwc, softmax=softmax).graph


def trace(net: nn.Module, input_shape_hwc: tuple[int, int, int], *, softmax: bool = True) -> TorchTrace:
    """The network as a Graph, together with the modules that each op came from."""
    height, width, channels = input_shape_hwc
    modes = {name: module.training for name, module in net.named_modules()}
    like = next(net.parameters(), torch.zeros(()))
    x = torch.linspace(-1, 1, channels * height * width, dtype=like.dtype).reshape(1, channels, height, width)
    x = x.to(like.device)
    try:
        # In eval mode: a functional dropout keeps what it is now, and the shape pass leaves the statistics alone.
        module = fx.GraphModule(net, _Tracer().trace(net.eval()))
        with torch.no_grad():
            expected, traced = net(x.clone()), _Shapes(module).propagate(x.clone())
    except Exception as error:
        raise StageError(
            f"{type(net).__name__}: torch.fx cannot trace it for input {input_shape_hwc} ({error}); "
            f"avoid data-dependent control flow and check the input shape"
        ) from error
    finally:
        for name, part in net.named_modules():
            part.training = modes[name]
    if not _are_close(expected, traced):
        # torch.fx takes 'x += y' for 'x = x + y', which leaves the old x as it was.
        raise StageError(
            f"{type(net).__name__}: computes something else when torch.fx traces it; "
            f"write x = x + y instead of x += y, and keep the forward free of state"
        )
    walk = Walk(module, HANDLERS)
    for node in module.graph.nodes:
        walk.visit(node)
    return TorchTrace(walk.finished(softmax), tuple(walk.build.layers), module)


class _Tracer(fx.Tracer):
    """Takes a layer of a user's own class for the torch layer that it computes like."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) or layer_type(m) is not None


class _Shapes(ShapeProp):
    """Notes the shape of every tensor, and what numbers such as x.size(3) or x.shape[2:] are."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, int | torch.Size):
            n.meta["number"] = result
        return result


def _are_close(expected: Any, found: Any) -> bool:
    """Whether two results agree; what is no tensor is refused elsewhere."""
    is_tensor = isinstance(expected, torch.Tensor)
    return not is_tensor or torch.allclose(expected, found, rtol=1e-3, atol=1e-5, equal_nan=True)
