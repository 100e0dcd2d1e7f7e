"""The section `training`: where prune and qat compute, and recipes beyond the paper's protocol, all of them off."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.stage import Config

Share = Annotated[float, Field(ge=0, le=1)]
TEACHER_FILES = ("architecture.json", "network.pt")


class PictureChanges(Config):
    """What torchvision.transforms.v2 makes of a training picture, anew in every epoch."""

    crop_scale: tuple[Share, Share] = (1.0, 1.0)  # share of the area that is cut out and brought to size
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width / height of what is cut out
    mirror: Share = 0.5  # how often
    colour: float = Field(default=0.0, ge=0, lt=1)  # brightness, contrast and saturation change by up to this share
    rotate_degrees: float = Field(default=0.0, ge=0, le=180)

    @model_validator(mode="after")
    def _rises(self) -> PictureChanges:
        for name, (low, high) in (("crop_scale", self.crop_scale), ("crop_ratio", self.crop_ratio)):
            if not 0 < low <= high:
                raise ValueError(f"found {name} from {low:g} to {high:g}, needed rising and above 0")
        return self


class DistillationConfig(Config):
    """A larger network that tells how alike the classes are (Hinton et al. 2015, arXiv:1503.02531)."""

    teacher: Path  # folder of architecture.json and network.pt: a run, its prune folder, or a copy of the two
    weight: Share = 0.5  # of the teacher's word; the rest is the labels'
    temperature: float = Field(default=4.0, gt=0)

    @property
    def folder(self) -> Path:
        """Where the two files lie."""
        inner = self.teacher / "prune"
        return inner if (inner / TEACHER_FILES[0]).is_file() else self.teacher


def most_of_class(counts: Sequence[int], class_share: float) -> int:
    """Examples of one class that an epoch takes at most, of `counts` by class: the largest limit within the share."""
    limit = max(counts)
    while limit > 1 and limit > class_share * sum(min(count, limit) for count in counts):
        limit -= 1
    return limit


class TrainingConfig(Config):
    """Everything off, and the CPU, is the paper's protocol."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto: a GPU where there is one
    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of prune; qat needs float32 for exact int8 sums
    workers: int = Field(default=1, ge=1)  # processes that read and augment; they change no result
    processes: int = Field(default=1, ge=1)  # that train together, each on its share of every batch
    checkpoint_minutes: float = Field(default=5.0, gt=0)  # within an epoch; there is one behind every epoch, too

    # Of an epoch's examples that one class may have: of a larger one each epoch draws others. So a class of many kinds,
    # such as `unknown`, is learned from all that there are of it. The network still expects the shares of validation:
    # the loss adds to the logits what an epoch's shares are beyond those.
    class_share: float = Field(default=1.0, gt=0, le=1)
    average: float = Field(default=0.0, ge=0, lt=1)  # decay of the moving average of the weights, such as 0.999
    mixup: float = Field(default=0.0, ge=0)  # alpha of Beta(alpha, alpha) (arXiv:1710.09412), such as 0.2
    cutmix: float = Field(default=0.0, ge=0)  # the same for pasted boxes (arXiv:1905.04899); with both, a coin decides
    stochastic_depth: Share = 0.0  # how often the last residual is left out (arXiv:1603.09382); prune only
    distillation: DistillationConfig | None = None
    pictures: PictureChanges | None = None  # None: as `data.augment` says

    def outside(self) -> Mapping[str, str]:
        if self.distillation is None:
            return {}
        files = [self.distillation.folder / name for name in TEACHER_FILES]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file()))
        return {"distillation.teacher": digest.hexdigest()}


PLAIN = TrainingConfig()
