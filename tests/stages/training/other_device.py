"""A device that is not the CPU, for machines without one: torch's private device, computing behind the scenes.

Its tensors say `other` and refuse to meet a tensor of the CPU, as those of a GPU do, so that whatever was left behind
on the wrong side is an error. Only single numbers of the CPU may take part; `.to()`, `.cpu()` and `copy_` cross over.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as tree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_CROSSING = ("aten::copy_", "aten::_to_copy")
_LIBRARIES: list[torch.library.Library] = []


class OtherTensor(torch.Tensor):
    """A tensor of the other device around one of the CPU."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OtherTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device="other:0", requires_grad=False
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.name().partition(".")[0]
        if name not in _CROSSING:
            _refuse_mixture(name, tree.tree_leaves((args, kwargs)))
        wanted = kwargs.get("device")
        to_cpu = wanted is not None and torch.device(wanted).type == "cpu"
        plain_args, plain_kwargs = tree.tree_map(_unwrapped, (args, kwargs))
        if wanted is not None:
            plain_kwargs["device"] = "cpu"
        found = function(*plain_args, **plain_kwargs)
        if function._schema.name.endswith("_") and isinstance(args[0], OtherTensor):
            return args[0]
        if to_cpu or (name == "aten::copy_" and not isinstance(args[0], OtherTensor)):
            return found
        return tree.tree_map(lambda value: OtherTensor(value) if type(value) is torch.Tensor else value, found)


def _unwrapped(value: Any) -> Any:
    return value.inner if isinstance(value, OtherTensor) else value


def _refuse_mixture(name: str, values: list[Any]) -> None:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    strangers = [value for value in tensors if not isinstance(value, OtherTensor) and value.dim()]
    if len(strangers) < len(tensors) and strangers:
        raise RuntimeError(f"{name}: a tensor of the CPU, {tuple(strangers[0].shape)}, met one of the other device")


@cache
def other_device() -> torch.device:
    """The device, registered when it is first asked for."""
    _setup_privateuseone_for_python_backend("other")
    library = torch.library.Library("aten", "IMPL")

    def empty(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
              memory_format: Any = None) -> torch.Tensor:  # fmt: skip
        return OtherTensor(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))

    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                      pin_memory: Any = None) -> torch.Tensor:  # fmt: skip
        return OtherTensor(torch.empty_strided(size, stride, dtype=dtype))

    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    _LIBRARIES.append(library)
    return torch.device("other:0")
