"""What a network was trained for, as a note inside its .tflite: classes, front end, standardisation.

`export` writes it from dataset.json, `pipeline evaluate` reads it: a file alone then says how to feed it and what its
outputs mean. Runtimes look at notes they know by name only, so this one costs flash, some hundred bytes, and nothing
else. Refuses a note that is too long, no JSON, or says impossible things.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from pipeline.errors import StageError
from pipeline.stage import Config
from stages.graph.tflite.reader import load_named, read_note

NOTE = "TINYML_TASK"  # its name among the metadata
_MOST_BYTES = 1 << 20
_Samples = Annotated[int, Field(ge=1, le=1 << 16)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class SoundFeatures(Config):
    """The front end in samples: the fields of `data.sounds.mfcc.MfccSettings`."""

    window_samples: _Samples
    hop_samples: _Samples
    fft_size: _Samples
    mel_bins: Annotated[int, Field(ge=1, le=1024)]
    low_hz: Annotated[int, Field(ge=0)]
    high_hz: PositiveInt
    coefficients: Annotated[int, Field(ge=1, le=1024)] | None  # None: log-mel, a column for each mel bin

    @property
    def columns(self) -> int:
        return self.mel_bins if self.coefficients is None else self.coefficients

    @model_validator(mode="after")
    def _fits(self) -> SoundFeatures:
        if self.fft_size < self.window_samples or self.columns > self.mel_bins or self.low_hz >= self.high_hz:
            raise ValueError("found a window, band or number of coefficients that does not fit its transform")
        return self


class PictureFeatures(Config):
    """Pictures in colour, of this side."""

    image_px: Annotated[int, Field(ge=1, le=4096)]


class Task(Config):
    """Part of dataset.json."""

    classes: Annotated[tuple[_Name, ...], Field(min_length=1)]
    sample_rate_hz: PositiveInt | None  # None: pictures
    features: SoundFeatures | PictureFeatures
    feature_mean: tuple[float, ...]  # per coefficient or colour
    feature_std: tuple[PositiveFloat, ...]

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Task:
        columns = self.features.columns if isinstance(self.features, SoundFeatures) else 3
        if {len(self.feature_mean), len(self.feature_std)} != {columns}:
            raise ValueError(
                f"found {len(self.feature_mean)} means and {len(self.feature_std)} deviations, not {columns}"
            )
        if (self.sample_rate_hz is None) == isinstance(self.features, SoundFeatures):
            raise ValueError("found a sample rate without sounds, or sounds without one")
        return self


def task_of(dataset: Mapping[str, Any], where: str = "dataset.json") -> Task:
    """From the record that prepare wrote."""
    try:
        return Task.model_validate({key: dataset[key] for key in Task.model_fields})
    except (KeyError, TypeError) as error:
        raise StageError(f"{where}: says nothing of {error}, needed what the prepare step writes") from error
    except ValidationError as error:
        first = error.errors()[0]
        found = ".".join(map(str, first["loc"])) or "task"
        raise StageError(f"{where}: {found}: {first['msg']}, needed what the prepare step writes") from error


def task_note(task: Task) -> dict[str, bytes]:
    """For `write_tflite`."""
    return {NOTE: json.dumps(task.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()}


def read_task(source: Path | bytes) -> Task | None:
    """The task of a file; None where it says nothing."""
    content = read_note(source, NOTE)
    if content is None:
        return None
    where = f"{load_named(source)[0]}: metadata {NOTE}"
    if len(content) > _MOST_BYTES:
        raise StageError(f"{where}: {len(content)} B, needed at most {_MOST_BYTES}")
    try:
        return task_of(json.loads(content), where)
    except (ValueError, RecursionError) as error:
        raise StageError(f"{where}: not readable as JSON ({error}); export the network again") from error
