"""What the paper printed (Liberis & Lane, table of MCU-sized architectures): reference marks, labelled as theirs.

Accuracy is a share; size counts parameters, at one byte each; None where they give none. Their latencies and energies
are of networks that the table does not name, so there are none here. A quick run has other data than theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_K, _M = 1_000, 1_000_000


@dataclass(frozen=True)
class Published:
    """One row of the paper."""

    model: str
    accuracy: float
    size_bytes: float | None
    peak_bytes: float | None
    macs: float


_KWS_S = Published("pruned to KWS-S", 0.9575, 61.9 * _K, 49.8 * _K, 8.342 * _M)
_KWS_M = Published("pruned to KWS-M", 0.9603, 115 * _K, 83.0 * _K, 15.56 * _M)
_KWS_L = Published("pruned to KWS-L", 0.9656, 511 * _K, 159 * _K, 65.47 * _M)
_MICRONETS_S = Published("MicroNets KWS-S", 0.9540, 63.6 * _K, 51.7 * _K, 8.351 * _M)
_MICRONETS_M = Published("MicroNets KWS-M", 0.9573, 117 * _K, 86.1 * _K, 15.58 * _M)
_MICRONETS_L = Published("MicroNets KWS-L", 0.9656, 512 * _K, 170 * _K, 65.75 * _M)
_VWW_2 = Published("MicroNets VWW-2", 0.8350, 103 * _K, 27.9 * _K, 3.383 * _M)
_VWW_1 = Published("MicroNets VWW-1", 0.8849, 616 * _K, 200 * _K, 71.58 * _M)

PUBLISHED: dict[str, Sequence[Published]] = {
    "kws_dscnn_s": (_KWS_S, _MICRONETS_S),
    "kws_dscnn_m": (_KWS_M, _MICRONETS_M),
    "kws_dscnn_l": (_KWS_L, _MICRONETS_L),
    "kws_res15": (Published("RES-15 pruned to KWS-M", 0.9542, 32.4 * _K, 27.4 * _K, 14.96 * _M),),
    "kws_res8": (Published("RES-8 pruned to KWS-S", 0.9278, 63.2 * _K, 13.7 * _K, 2.354 * _M),),
    "vww50_mobilenetv2": (
        Published("pruned to VWW-2, first", 0.8340, 101 * _K, 25 * _K, 2.528 * _M),
        Published("pruned to VWW-2, second", 0.8380, 101 * _K, 27.8 * _K, 3.342 * _M),
        _VWW_2,
    ),
    "vww50_efficientnetb0": (Published("pruned to VWW-2", 0.8334, 95.0 * _K, 27.8 * _K, 3.245 * _M), _VWW_2),
    "vww160_mobilenetv2": (Published("pruned to VWW-1", 0.8905, 606 * _K, 198 * _K, 58.33 * _M), _VWW_1),
    "vww160_efficientnetb0": (Published("pruned to VWW-1", 0.8877, 601 * _K, 199 * _K, 52.13 * _M), _VWW_1),
    "cifar10_vgg16_ac": (
        Published("pruned to A/C, first", 0.9115, 309 * _K, 52.2 * _K, 22.38 * _M),
        Published("pruned to A/C, second", 0.9038, 184 * _K, 62.5 * _K, 22.15 * _M),
        Published("A/C (float)", 0.8878, 311 * _K, None, 22.38 * _M),
    ),
    "cifar10_vgg16_dsa": (
        Published("pruned to DSA", 0.9036, 834 * _K, 34.8 * _K, 15.28 * _M),
        Published("DSA (float)", 0.9016, None, None, 15.35 * _M),
    ),
    "cifar10_resnet18_dsa": (
        Published("pruned to DSA", 0.9449, 2.44 * _M, 88.0 * _K, 97.20 * _M),
        Published("DSA (float)", 0.9310, None, None, 97.51 * _M),
    ),
    "cifar10_resnet18_mcu": (Published("pruned, MCU-sized", 0.9198, 256 * _K, 81.9 * _K, 29.58 * _M),),
    "imagenet_mcunet_s": (
        Published("pruned to MCUNet-S", 0.5978, 740 * _K, 256 * _K, 66.59 * _M),
        Published("MCUNet-S", 0.5978, 748 * _K, 333 * _K, 67.41 * _M),
    ),
    "imagenet_mcunet_m": (
        Published("pruned to MCUNet-M", 0.6092, 647 * _K, 280 * _K, 81.66 * _M),
        Published("MCUNet-M", 0.6098, 756 * _K, 341 * _K, 81.94 * _M),
    ),
    "imagenet_etinynet": (
        Published("pruned to x0.75", 0.5655, 638 * _K, 149 * _K, 63.32 * _M),
        Published("EtinyNet x0.75", 0.5575, 660 * _K, 151 * _K, 63.35 * _M),
    ),
}
