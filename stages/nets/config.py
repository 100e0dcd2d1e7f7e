"""The sections `network` and `budget` of an experiment: which backbone, and what the device has room for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.stage import Config
from pipeline.units import Bytes, Count


class NetworkConfig(Config):
    """The backbone before pruning; the defaults are the paper's 'MN-M'."""

    name: Literal["dscnn"] = "dscnn"
    width: int = Field(default=276, ge=1)  # channels of every layer
    blocks: int = Field(default=5, ge=1)  # depthwise-separable blocks; 7 make 'MN-L'


class BudgetConfig(Config):
    """What the pruned network may use at most; 1 KB = 1000 bytes."""

    peak_bytes: Bytes  # activations alive at once, in the best operator order
    size_bytes: Bytes  # int8 weights and int32 biases
    macs: Count  # multiply-accumulates of one inference
