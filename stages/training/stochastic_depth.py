"""Residuals left out at random while a network trains (Huang et al. 2016, arXiv:1603.09382).

Where two maps are added, the one behind more layers is the residual. For an example that loses it, it is 0; the others
get theirs scaled up so that the mean stays. The share of examples rises evenly from the first addition to the last.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

_SUMS = (operator.add, operator.iadd, torch.add)


def with_stochastic_depth(net: nn.Module, traced: fx.GraphModule, last_share: float) -> nn.Module:
    """The network, changed in place; `traced` is its graph. Without residuals nothing changes."""
    if last_share:
        branches = residuals(traced)
        for number, name in enumerate(branches, 1):
            module = net.get_submodule(name)
            for key, hook in list(module._forward_hooks.items()):
                if isinstance(hook, _Dropping):  # a network cut from another one brings it along
                    del module._forward_hooks[key]
            module.register_forward_hook(_Dropping(last_share * number / len(branches)))
    return net


def residuals(traced: fx.GraphModule) -> list[str]:
    """For every sum of two maps the module that ends its longer branch, in the order of the network."""
    found = []
    for node in traced.graph.nodes:
        if node.target in _SUMS or node.target in ("add", "add_"):
            operands = [argument for argument in node.args[:2] if isinstance(argument, fx.Node)]
            if len(operands) == 2:
                one, other = (_behind(operand) for operand in operands)
                longer = operands[0] if len(one - other) >= len(other - one) else operands[1]
                if (name := _last_module(longer)) is not None:
                    found.append(name)
    return found


def _behind(node: fx.Node) -> set[fx.Node]:
    """The node and all that it is computed from."""
    seen, waiting = set(), [node]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting += each.all_input_nodes
    return seen


def _last_module(node: fx.Node) -> str | None:
    while node.op != "call_module":
        if len(node.all_input_nodes) != 1:
            return None
        node = node.all_input_nodes[0]
    return str(node.target)


@dataclass(frozen=True)
class _Dropping:
    """A hook behind the module that ends a residual."""

    share: float

    def __call__(self, module: nn.Module, _: Any, result: Tensor) -> Tensor | None:
        if not module.training:
            return None
        kept = torch.rand(len(result), *[1] * (result.dim() - 1)).to(result.device) >= self.share
        return result * kept / (1 - self.share) if self.share < 1 else torch.zeros_like(result)
