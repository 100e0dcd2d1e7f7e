"""`weights: small`: no more flash than the weights in int8, the biases in 32 bits and 20 KB for everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.stage import read_json
from stages.firmware.fast.packed_channels import device_multiplier
from stages.firmware.stage import FirmwareConfig
from stages.graph.arithmetic.fixed_point import quantised_multiplier
from stages.graph.graph import Graph
from tests.benchmarks.subjects.benchmark_networks import anomaly_detector, mobilenet_v1, pruned_dscnn
from tests.stages.firmware.test_firmware_stage import build

BEYOND_BYTES = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("board", ["nucleo_f767zi", "nucleo_h743zi2"])
@pytest.mark.parametrize("network", [mobilenet_v1, pruned_dscnn, anomaly_detector])
def test_small_firmware_takes_20_kb_beside_weights_and_biases(
    network: Callable[[], Graph], board: str, tmp_path: Path
) -> None:
    graph = network()
    built = build(tmp_path / "small", graph, board, FirmwareConfig(weights="small"))
    constants = {index for op in graph.ops for index in graph.constants_of(op) if op.kind != "RESHAPE"}
    bound = sum(graph.tensors[index].nbytes for index in constants) + BEYOND_BYTES
    assert read_json(built.footprint)["flash_bytes"] <= bound


def test_the_multiplier_that_the_device_computes_is_that_of_tflm() -> None:
    scales = np.exp(np.random.default_rng(0).uniform(-6, 3, (2000, 3))).astype("<f4")
    for triple, bits in zip(scales.tolist(), scales.view("<u4").tolist(), strict=True):
        wanted = quantised_multiplier(triple[0] * triple[1] / triple[2])
        assert device_multiplier(*bits) == (wanted.mantissa, -wanted.shift)
