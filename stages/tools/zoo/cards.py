"""The zoo: `data/zoo/NAME/` holds `model.tflite` and `card.yaml`, which says where it comes from and how good it is.

A card is made by `pipeline publish` alone. It holds the sha256 of the model and one of its own contents, so that a file
that was damaged, cut off, exchanged or renamed, and a figure that somebody improved, are found before they are used.
`zoo:NAME` is looked for in the zoo of the project, then in that of the package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, JsonValue, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

import data
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Config

MODEL, CARD = "model.tflite", "card.yaml"
MODEL_LIMIT_BYTES, ZOO_LIMIT_BYTES = 1_000_000, 4_000_000  # they lie in git
PACKAGED = Path(data.__file__).parent / "zoo"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_HEAD = "# Made by `pipeline publish`. A change by hand is found (card_sha256), and the network refused.\n"
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataOfCard(Config):
    """What it was trained and tested with."""

    source: str  # as `--data` takes it
    settings: dict[str, JsonValue]  # of the section `data`, where they are not the usual ones
    what: str  # with versions and numbers, for people
    licence: str
    classes: tuple[str, ...]
    examples_sha256: Sha256  # of all splits, as prepare saw them


class AccuracyOfCard(Config):
    """On the test split; on validation what choices were made by."""

    n: PositiveInt
    int8: Share
    int8_standard_error: NonNegativeFloat
    float_network: Share
    float_standard_error: NonNegativeFloat
    validation_float: Share
    validation_int8: Share  # of the fake-quant network, which rounds as the device does


class BoardOfCard(Config):
    """One board or its twin: what was measured and what was modelled, in fields of their own."""

    board: str
    source: Literal["hardware", "virtual"]
    clock_hz: PositiveInt
    n: PositiveInt  # timed inferences
    flash_bytes: PositiveInt
    ram_bytes: PositiveInt
    instructions: PositiveInt | None = None
    latency_ms: NonNegativeFloat | None = None
    latency_ms_2sigma: NonNegativeFloat | None = None
    latency_ms_modelled: NonNegativeFloat | None = None
    energy_mj: NonNegativeFloat | None = None
    energy_mj_2sigma: NonNegativeFloat | None = None
    energy_mj_modelled: NonNegativeFloat | None = None
    energy_mj_modelled_uncertainty: NonNegativeFloat | None = None


class Card(Config):
    """card.yaml."""

    name: str
    experiment: str
    quick: bool
    command: str
    evaluate: str  # the command that gives its accuracy again
    run_id: str
    date: str
    commit: str | None = None  # None: the project is in no repository
    dirty: bool | None = None
    note: str | None = None  # what the command does not say of how it was made
    seed: dict[str, int]
    config_digest: Sha256
    data: DataOfCard
    budget: dict[str, int | float]
    fits: bool
    accuracy: AccuracyOfCard
    size_bytes: PositiveInt
    peak_bytes: PositiveInt
    arena_bytes: PositiveInt
    macs: PositiveInt
    boards: tuple[BoardOfCard, ...]
    versions: dict[str, str]
    model_bytes: NonNegativeInt
    sha256: Sha256  # of model.tflite


def card_text(card: Card) -> str:
    """card.yaml of a card."""
    plain = card.model_dump(mode="json", exclude_none=True)
    return _HEAD + yaml.safe_dump({**plain, "card_sha256": _digest(plain)}, sort_keys=False, width=110)


def read_card(folder: Path) -> Card:
    """The card of one network; StageError if it is not as it was published."""
    where = f"zoo:{folder.name}: {CARD}"
    try:
        plain = yaml.safe_load((folder / CARD).read_text())
        told = plain.pop("card_sha256")
        card = Card.model_validate(plain)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise StageError(f"{where}: cannot be read ({error}), needed as published; publish it again") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise StageError(f"{where}: {key}: {first['msg']}, needed as published; publish it again") from error
    if told != _digest(plain):
        raise StageError(f"{where}: was changed since it was published (card_sha256 differs); publish it again")
    if card.name != folder.name:
        raise StageError(f"{where}: belongs to zoo:{card.name}, needed that of {folder.name}; publish it again")
    return card


def verified_model(folder: Path) -> tuple[Card, Path]:
    """Card and file of one network, if they belong together and are whole."""
    card, model = read_card(folder), folder / MODEL
    try:
        content = model.read_bytes()
    except OSError as error:
        raise StageError(f"zoo:{folder.name}: {MODEL} cannot be read ({error.strerror}); publish it again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != card.sha256:
        detail = (
            f"{len(content)} B with sha256 {found[:12]}, its card says {card.model_bytes} B with {card.sha256[:12]}"
        )
        raise StageError(
            f"zoo:{folder.name}: {MODEL} is {detail}: damaged, cut off or another network; publish or fetch it again"
        )
    return card, model


def zoo_model(name: str, project: Path) -> Path:
    """The file that `zoo:NAME` stands for."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"zoo:{name}: is no name of a network; the list is: pipeline zoo")
    for zoo in zoo_folders(project):
        if (zoo / name).is_dir():
            return verified_model(zoo / name)[1]
    known = ", ".join(folder.name for folder in networks(project)) or "none yet"
    raise ConfigError(f"zoo:{name}: no such network, published are {known}; the list is: pipeline zoo")


def zoo_folders(project: Path) -> list[Path]:
    """Of the project, and of the package."""
    return list(dict.fromkeys([own_zoo(project).resolve(), PACKAGED]))


def own_zoo(project: Path) -> Path:
    """Where a project publishes."""
    return project / "data" / "zoo"


def networks(project: Path) -> Iterator[Path]:
    """The folder of every published network; of two of one name the project's."""
    seen: set[str] = set()
    for zoo in zoo_folders(project):
        for folder in sorted(zoo.iterdir()) if zoo.is_dir() else ():
            if _NAME.fullmatch(folder.name) and (folder / CARD).is_file() and folder.name not in seen:
                seen.add(folder.name)
                yield folder


def check_name(name: str) -> str:
    """ConfigError unless it can be the name of a network."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--name {name}: needed small letters, digits, '_', '-' and '.', such as kws_dscnn_s")
    return name


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
