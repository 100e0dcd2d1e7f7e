"""A teacher: a trained network whose word on every training example is part of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from pickle import UnpicklingError

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError, StageError
from stages.nets.registry import read_architecture
from stages.training.config import TEACHER_FILES, DistillationConfig


@dataclass(frozen=True, eq=False)
class Teacher:
    """Distillation as Hinton et al. describe it (arXiv:1503.02531)."""

    net: nn.Module
    weight: float
    temperature: float

    def joined(self, loss: Tensor, logits: Tensor, x: Tensor) -> Tensor:
        """The labels' loss and the divergence from the teacher, each with its weight."""
        with torch.no_grad():
            told = F.log_softmax(self.net(x) / self.temperature, 1)
        said = F.log_softmax(logits / self.temperature, 1)
        apart = F.kl_div(said, told, reduction="batchmean", log_target=True) * self.temperature**2
        return (1 - self.weight) * loss + self.weight * apart


def load_teacher(
    config: DistillationConfig | None, input_shape: tuple[int, int, int], classes: int, device: torch.device
) -> Teacher | None:
    """The teacher that was asked for; ConfigError unless it is made for these examples."""
    if config is None:
        return None
    where = f"training.distillation.teacher: {config.teacher}"
    architecture, weights = (config.folder / name for name in TEACHER_FILES)
    if not architecture.is_file() or not weights.is_file():
        raise ConfigError(f"{where}: holds no {' and '.join(TEACHER_FILES)}; name a run's folder or its prune folder")
    found = read_architecture(architecture)
    if (found.input_shape, found.classes) != (input_shape, classes):
        raise ConfigError(
            f"{where}: is made for {found.input_shape} and {found.classes} classes, the data are {input_shape} and "
            f"{classes}; train a teacher on these data"
        )
    net = found.build()
    try:
        net.load_state_dict(torch.load(weights, weights_only=True, map_location="cpu"))
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, UnpicklingError) as error:
        raise StageError(f"{weights}: does not fit {architecture.name} ({str(error).splitlines()[0]})") from error
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    return Teacher(net.eval().to(device), config.weight, config.temperature)
