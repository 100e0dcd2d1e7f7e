"""torchaudio and torchvision beside a CPU-only torch.

Their wheels bring a C++ part that is linked against CUDA and cannot be loaded next to a torch without it, which stops
the whole import. What this project uses of them (filter banks, DCT, transforms, model definitions) is plain Python:
when the normal import fails, the C++ part is declared absent and the import is tried once more.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pipeline.errors import StageError

# Library objects must stay alive, or torch forgets the operators defined through them.
_DEFINED: list[object] = []


def import_torchaudio() -> ModuleType:
    """The torchaudio module, without its C++ part where that cannot be loaded."""
    return _import_repaired("torchaudio", _declare_no_torchaudio_extension)


def import_torchvision() -> ModuleType:
    """The torchvision module, without its C++ operators where they cannot be loaded."""
    return _import_repaired("torchvision", _declare_torchvision_operators)


def _import_repaired(name: str, repair: Callable[[], None]) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise StageError(f"{name}: not installed, needed for features; install the project's requirements") from error
    except (ImportError, OSError, RuntimeError):
        _forget(name)
        repair()
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise StageError(
            f"{name}: cannot be imported beside this torch ({error}); install the versions the project pins"
        ) from error


def _forget(name: str) -> None:
    """Drop what a failed import left behind, so that the next one starts afresh."""
    for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        del sys.modules[module]


def _declare_no_torchaudio_extension() -> None:
    """Stand in for `torchaudio._extension`, whose import is what loads the C++ part."""

    def refuse(function: Callable[..., Any]) -> Callable[..., Any]:
        def absent(*_: Any, **__: Any) -> Any:
            raise StageError(f"torchaudio.{function.__name__}: needs torchaudio's C++ part, absent beside a CPU torch")

        return absent

    stand_in = ModuleType("torchaudio._extension")
    vars(stand_in).update(_IS_TORCHAUDIO_EXT_AVAILABLE=False, _IS_ALIGN_AVAILABLE=False, fail_if_no_align=refuse)
    sys.modules["torchaudio._extension"] = stand_in


def _declare_torchvision_operators() -> None:
    """Define the two operators for which torchvision registers shape functions without asking whether they exist."""
    library = importlib.import_module("torch.library").Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DEFINED.append(library)
