"""The sections `network` and `budget` of an experiment: which backbone, and what the device has room for.

A network is one of ours by `name`, with the arguments of its family, or a user's own torch CNN by `module`
('my_nets:make', a file beside pipeline.yaml) called with `args`. Input shape and classes that are not given come from
the data (`for_data`); before there are any, a named network is as its family is used, and a user's has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from pipeline.errors import ConfigError
from pipeline.stage import Config
from pipeline.units import Bytes, Count

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
    "bc_kws": Family(*_KEYWORDS, {"width": 48}),
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


class BudgetConfig(Config):
    """What the pruned network may use at most, at least one of the three; 1 KB = 1000 bytes."""

    peak_bytes: Bytes | None = None  # activations alive at once, in the best operator order
    size_bytes: Bytes | None = None  # int8 weights and int32 biases
    macs: Count | None = None  # multiply-accumulates of one inference
    # What peak_bytes means: classic, as in the paper; overlap, of firmware that writes outputs over dying inputs and
    # fuses layers row by row.
    runtime: Literal["classic", "overlap"] = "classic"
    required: bool = True  # a network that somebody brings along need not have a budget

    @classmethod
    def completed(cls, values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        return {"required": False, **values} if "bring" in sections else values

    @model_validator(mode="after")
    def _has_one(self) -> BudgetConfig:
        if self.required and not self.limits:
            raise ValueError("found no budget, needed at least one of peak_bytes, size_bytes and macs")
        return self

    @property
    def limits(self) -> dict[str, int]:
        """The budgets that are given."""
        return {key: value for key, value in self if key not in ("runtime", "required") and value is not None}
