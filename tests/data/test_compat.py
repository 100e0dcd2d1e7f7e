"""torchaudio and torchvision can be imported beside the installed torch, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from data.compat import _declare_no_torchaudio_extension, _forget, _import_repaired
from pipeline.errors import StageError


def fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_torchaudio_gives_filter_banks_and_mfcc() -> None:
    code = """
from data.compat import import_torchaudio
torchaudio = import_torchaudio()
import torchaudio as again, torch
assert again is torchaudio
print(tuple(torchaudio.transforms.MFCC(n_mfcc=10)(torch.zeros(16000)).shape))
"""
    assert fresh(code) == "(10, 81)"


@pytest.mark.slow
def test_torchvision_gives_transforms_and_models() -> None:
    code = """
from data.compat import import_torchvision
import_torchvision()
import torch
from torchvision import models
from torchvision.transforms import v2
print(tuple(models.mobilenet_v2().eval()(v2.CenterCrop(32)(torch.zeros(1, 3, 40, 40))).shape))
"""
    assert fresh(code) == "(1, 1000)"


def test_the_missing_part_of_torchaudio_is_declared_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchaudio._extension", None)
    _declare_no_torchaudio_extension()
    stand_in = sys.modules["torchaudio._extension"]
    assert (stand_in._IS_TORCHAUDIO_EXT_AVAILABLE, stand_in._IS_ALIGN_AVAILABLE) == (False, False)
    with pytest.raises(StageError, match="torchaudio.len: needs torchaudio's C.. part, absent beside a CPU torch"):
        stand_in.fail_if_no_align(len)("a")


def test_a_failed_import_is_forgotten_with_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toy_package", "toy_package.part", "toy_packages"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    _forget("toy_package")
    assert [name for name in sys.modules if name.startswith("toy_package")] == ["toy_packages"]


def test_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(StageError, match="no_such_package: not installed, needed for features"):
        _import_repaired("no_such_package", lambda: None)
