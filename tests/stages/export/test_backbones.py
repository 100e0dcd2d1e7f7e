"""Every backbone exports to full int8, loads in TensorFlow Lite Micro and agrees with the fake-quant network.

Small inputs and narrow layers here; `python -m tests.stages.export.backbones` does it at full size.
"""

from __future__ import annotations

import pytest

from stages.nets.config import FAMILIES, NetworkConfig
from tests.stages.export.backbones import agreement

SMALL: dict[str, dict[str, object]] = {
    "dscnn": {"width": 24, "blocks": 3},
    "dscnn_mlperf": {"width": 24},
    "res8": {"width": 16},
    "res15": {"width": 12, "input_shape": (25, 10, 1)},
    "bc_kws": {"width": 8},
    "vgg16": {"width_multiplier": 0.1},
    "resnet8": {"width": 8, "input_shape": (24, 24, 3)},
    "resnet18": {"width": 8, "input_shape": (24, 24, 3)},
    "inverted_cifar": {"width_multiplier": 0.5, "input_shape": (24, 24, 3)},
    "mobilenet_v1": {"input_shape": (32, 32, 3), "classes": 4},
    "mobilenet_v2": {"input_shape": (32, 32, 3), "width_multiplier": 0.25, "classes": 4},
    "efficientnet_b0": {"input_shape": (32, 32, 3), "width_multiplier": 0.25, "classes": 4},
    "mcunet_s": {"input_shape": (40, 40, 3), "width_multiplier": 0.25, "classes": 20},
    "mcunet_m": {"input_shape": (40, 40, 3), "width_multiplier": 0.25, "classes": 20},
    "etinynet": {"input_shape": (40, 40, 3), "width_multiplier": 0.25, "classes": 20},
}


def test_every_family_is_tried() -> None:
    assert set(SMALL) == set(FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_int8_agrees_with_the_fake_quant_network(name: str) -> None:
    found = agreement(NetworkConfig(name=name, **SMALL[name]), 60, training_samples=32)  # type: ignore[arg-type]
    assert found.only_int8 and "TRANSPOSE" not in found.kinds
    assert found.classes_seen > 1
    assert found.top1 >= 0.99
    assert found.within_1_lsb >= 0.95
