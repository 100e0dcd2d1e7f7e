"""The sections `network` and `budget` of an experiment: which backbone, and what the device has room for.

A network is one of ours by `name`, with the arguments of its family, or a user's own torch CNN by `module`
('my_nets:make', a file beside pipeline.yaml) called with `args`. Input shape and classes that are not given come from
the data (`for_data`); before there are any, a named network is as its family is used, and a user's has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from boards import BOARDS_FOLDER
from pipeline.errors import ConfigError
from pipeline.stage import Config
from pipeline.units import Bytes, Count

DEVICE_OBJECTIVES = ("latency_ms", "energy_mj", "flash_bytes", "ram_bytes")

NetworkName = Literal[
    "dscnn",
    "dscnn_mlperf",
    "res8",
    "res15",
    "bc_kws",
    "vgg16",
    "resnet8",
    "resnet18",
    "inverted_cifar",
    "mobilenet_v1",
    "mobilenet_v2",
    "efficientnet_b0",
    "mcunet_s",
    "mcunet_m",
    "etinynet",
]
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Family:
    """What a network is by default, and which arguments it takes."""

    input_shape: tuple[int, int, int]  # height, width, channels
    classes: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


_KEYWORDS = (49, 10, 1), 12
_CIFAR = (32, 32, 3), 10
_IMAGENET_CLASSES = 1000

FAMILIES: dict[str, Family] = {
    "dscnn": Family(*_KEYWORDS, {"width": 276, "blocks": 5}),  # 'MN-M'; 7 blocks make 'MN-L'
    "dscnn_mlperf": Family(*_KEYWORDS, {"width": 64, "blocks": 4}),
    "res8": Family(*_KEYWORDS, {"width": 45}),
    "res15": Family(*_KEYWORDS, {"width": 45}),
    "bc_kws": Family((49, 40, 1), 12, {"width": 24}),  # log-mel
    "vgg16": Family(*_CIFAR, {"width_multiplier": 1.0}),
    "resnet8": Family(*_CIFAR, {"width": 16}),
    "resnet18": Family(*_CIFAR, {"width": 64}),
    "inverted_cifar": Family(*_CIFAR, {"width_multiplier": 1.0}),
    "mobilenet_v1": Family((96, 96, 3), 2, {"width_multiplier": 0.25}),
    "mobilenet_v2": Family((160, 160, 3), 2, {"width_multiplier": 1.0, "extras": True}),
    "efficientnet_b0": Family((160, 160, 3), 2, {"width_multiplier": 1.0}),
    "mcunet_s": Family((160, 160, 3), _IMAGENET_CLASSES, {"width_multiplier": 1.0}),
    "mcunet_m": Family((176, 176, 3), _IMAGENET_CLASSES, {"width_multiplier": 1.0}),
    "etinynet": Family((112, 112, 3), _IMAGENET_CLASSES, {"width_multiplier": 1.0}),
}
ARGUMENTS = ("width", "blocks", "width_multiplier", "extras")
_FOR_SOUNDS, _FOR_PICTURES = "dscnn", "mobilenet_v1"  # where no network is named


class NetworkConfig(Config):
    """The backbone before pruning; without a name the paper's 'MN-M' for sounds, MobileNet-v1 for pictures."""

    name: NetworkName | None = None
    module: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    args: dict[str, JsonValue] = {}  # keyword arguments of `module`
    input_shape: tuple[Positive, Positive, Positive] = Field(default=None)  # height, width, channels
    classes: Annotated[int, Field(ge=2)] = Field(default=None)
    width: Positive | None = None  # channels of every layer, or of the first stage
    blocks: Positive | None = None  # depthwise-separable blocks
    width_multiplier: Annotated[float, Field(gt=0)] | None = None  # of all channels
    extras: bool | None = None  # what the paper's MobileNet-v2 has beyond the published one

    @classmethod
    def completed(cls, values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """The size that the data section gives the pictures need not be said here again."""
        data = sections.get("data", {})
        is_heard = str(data.get("source", "speech")).startswith(("speech", "builtin_keywords"))
        if data.get("image_px") is None or values.get("input_shape") is not None or is_heard:
            return values
        return {**values, "input_shape": [data["image_px"], data["image_px"], 3]}

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or (values.get("name") and values["name"] not in FAMILIES):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        if "module" in given:
            return _checked_module(given)
        if given.get("args"):
            raise ValueError(
                "found args, which go with 'module'; give the arguments of a named network beside its name"
            )
        name = _name(given)
        family = FAMILIES[name]
        for key in ARGUMENTS:
            if key in given and key not in family.arguments:
                known = ", ".join(family.arguments)
                raise ValueError(f"found {key}, which {name} does not take; it takes {known}")
        return given

    @model_validator(mode="after")
    def _as_its_family(self) -> NetworkConfig:
        """Whatever is not given; it does not become one of the given fields."""
        if self.module is None:
            name = _name({key: getattr(self, key) for key in self.model_fields_set})
            family = FAMILIES[name]
            usual = {"name": name, "input_shape": family.input_shape, "classes": family.classes, **family.arguments}
            for key, value in usual.items():
                if getattr(self, key) is None:
                    object.__setattr__(self, key, value)  # of a frozen model that nobody has seen yet
        return self

    def for_data(self, input_shape: tuple[int, int, int], classes: int) -> NetworkConfig:
        """The network for examples of this shape and number of classes; ConfigError where others were asked for."""
        given = {key: getattr(self, key) for key in self.model_fields_set}
        for key, found in (("input_shape", input_shape), ("classes", classes)):
            if given.get(key) not in (None, found):
                raise ConfigError(_mismatch(key, given[key], found))
        return NetworkConfig(**{**given, "input_shape": input_shape, "classes": classes})

    @property
    def title(self) -> str:
        """How messages call the network."""
        return self.name or self.module or ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the named network's family."""
        assert self.name is not None
        return {key: getattr(self, key) for key in FAMILIES[self.name].arguments}

    @property
    def source_modules(self) -> tuple[str, ...]:
        """Modules that the network is made by beside ours: part of what a step's result depends on."""
        return () if self.module is None else (self.module.partition(":")[0],)


def _name(given: Mapping[str, Any]) -> str:
    """Of a network of ours; where nothing was said about it, the kind of data decides."""
    shape = given.get("input_shape")
    are_pictures = shape is not None and len(shape) == 3 and shape[2] == 3
    is_free = not given.keys() & set(ARGUMENTS)
    return given.get("name") or (_FOR_PICTURES if are_pictures and is_free else _FOR_SOUNDS)


def _checked_module(given: dict[str, Any]) -> dict[str, Any]:
    odd = [key for key in ("name", *ARGUMENTS) if key in given]
    if odd:
        raise ValueError(f"found {odd[0]} beside module; give the arguments of your own network as 'args'")
    return given


def _mismatch(key: str, wanted: Any, found: Any) -> str:
    if key == "classes":
        return f"network.classes: found {wanted}, the data have {found}; remove network.classes, or set it to {found}"
    sides = [f"{'x'.join(map(str, shape))}" for shape in (wanted, found)]
    way_out = "remove network.input_shape"
    if wanted[0] == wanted[1] and wanted[2] == found[2] == 3:
        way_out += f", or set data.image_px to {wanted[0]}"
    return f"network.input_shape: found {sides[0]} (height, width, channels), the data are {sides[1]}; {way_out}"


_FIRMWARE_KEYS = ("weights", "runtime", "fusion", "optimise", "spare_ram")  # what cycles, flash and RAM depend on
COST_MODULE = "stages.firmware.cost.network"  # known by name only: pruning does not depend on the compiler without need


def _share(value: Any) -> Any:
    """'60%' -> -0.6, which no latency can be."""
    if isinstance(value, str) and value.strip().endswith("%"):
        share = float(value.strip()[:-1]) / 100
        if not 0 < share < 1:
            raise ValueError(f"found {value!r}, needed a share between 0% and 100%, or milliseconds")
        return -share
    return value


class BoardBudget(Config):
    """What the firmware may use at most on one board."""

    # Milliseconds, modelled; or a share such as 60% of what the network takes that just meets the other budgets.
    latency_ms: Annotated[float, BeforeValidator(_share)] | None = None
    energy_mj: Annotated[float, Field(gt=0)] | None = None  # of one inference, at the board's power
    flash_bytes: Bytes | None = None  # of the whole image
    ram_bytes: Bytes | None = None  # arena, scratch memory, stack, variables, buffers of the link

    @field_validator("latency_ms")
    @classmethod
    def _is_time(cls, value: float | None) -> float | None:
        if value is not None and (value == 0 or value <= -1):
            raise ValueError(f"found {value:g}, needed milliseconds above zero, or a share such as 60%")
        return value

    @property
    def own_limits(self) -> dict[str, float]:
        given = {name: getattr(self, name) for name in DEVICE_OBJECTIVES}
        return {name: value for name, value in given.items() if value is not None}


class BudgetConfig(BoardBudget):
    """What the pruned network may use at most, at least one of all; 1 KB = 1000 bytes.

    Latency, energy, flash and RAM are those of the firmware on `board`, or on each of `boards`.
    """

    peak_bytes: Bytes | None = None  # activations alive at once, in the best operator order
    size_bytes: Bytes | None = None  # int8 weights and int32 biases
    macs: Count | None = None  # multiply-accumulates of one inference
    # What peak_bytes means: classic, as in the paper; overlap, of firmware that writes outputs over dying inputs and
    # fuses layers row by row.
    runtime: Literal["classic", "overlap"] = "classic"
    board: str | None = None
    boards: dict[str, BoardBudget] = {}
    firmware: dict[str, str] = {}  # taken over from the section `firmware`, where there is a budget for a board
    required: bool = True  # a network that somebody brings along need not have a budget

    @classmethod
    def completed(cls, values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        if values.get("boards") or values.get("board"):
            given = sections.get("firmware", {})
            values = {**values, "firmware": {key: given[key] for key in _FIRMWARE_KEYS if key in given}}
        return {"required": False, **values} if "bring" in sections else values

    @model_validator(mode="after")
    def _has_one(self) -> BudgetConfig:
        if self.own_limits and self.board is None:
            first = next(iter(self.own_limits))
            raise ValueError(
                f"found {first} without a board, needed the board it holds for, such as board: nucleo_f767zi"
            )
        if self.board is not None and not self.own_limits:
            raise ValueError(f"found board {self.board}, needed a budget for it: {', '.join(DEVICE_OBJECTIVES)}")
        for name, given in self.boards.items():
            if not given.own_limits or name == self.board:
                raise ValueError(f"found boards.{name} twice or empty, needed one of {', '.join(DEVICE_OBJECTIVES)}")
        if self.required and not self.limits and not self.device_limits:
            raise ValueError("found no budget, needed at least one of peak_bytes, size_bytes and macs")
        return self

    @property
    def limits(self) -> dict[str, int]:
        """The budgets of the paper that are given."""
        given = {name: getattr(self, name) for name in ("peak_bytes", "size_bytes", "macs")}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def device_limits(self) -> dict[str, dict[str, float]]:
        """Those of the firmware, by board."""
        own = {} if self.board is None else {self.board: self.own_limits}
        return own | {name: given.own_limits for name, given in self.boards.items()}

    @property
    def source_modules(self) -> tuple[str, ...]:
        """The compiler, whose code a budget for a board depends on."""
        return (COST_MODULE,) if self.device_limits else ()

    def outside(self) -> Mapping[str, str]:
        """What the compiler compiles, and the boards' figures."""
        if not self.device_limits:
            return {}
        digest = hashlib.sha256()
        for folder in ("firmware", *self.device_limits):
            for file in sorted((BOARDS_FOLDER / folder).rglob("*")):
                if file.is_file():
                    digest.update(file.read_bytes())
        return {"boards": digest.hexdigest()}
