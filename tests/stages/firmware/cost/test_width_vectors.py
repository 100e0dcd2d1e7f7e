"""Twenty vectors of widths cost on the twin, in firmware that was really built, what was predicted.

Ten in a build: units that branch stand one behind the other, each with widths of its own. tests/benchmarks/firmware/
cost_prediction.py does the same with whole backbones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from boards import load_board
from pipeline.stage import read_json
from stages.firmware.config import FirmwareConfig
from stages.firmware.cost.compiled import Compiler
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import settings_of
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.firmware.stage import run as firmware
from stages.graph.tflite.writer import write_tflite
from stages.measure.modelled import profile_network
from stages.nets.channels import find_channels
from tests.stages.firmware.cost.branching import layer

SHAPE = (8, 6, 3)
UNITS, GROUPS = 10, 3  # groups of channels in a unit


class Unit(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.stem = layer(inputs, width, 1)
        self.one = nn.Sequential(layer(width, width, 3, groups=width), layer(width, width, 1))
        self.two = layer(width, width, 3)
        self.end = layer(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        found: Tensor = self.end(self.one(x) + self.two(x))
        return found


@pytest.mark.parametrize(("weights", "board"), [("fast", "disco_f746ng"), ("small", "nucleo_h743zi2")])
def test_ten_vectors_of_widths_cost_what_was_predicted(weights: str, board: str, tmp_path: Path) -> None:
    units = [Unit(3, 24), *(Unit(24, 24) for _ in range(UNITS - 1))]
    net = nn.Sequential(*units, nn.AvgPool2d((8, 6)), nn.Hardswish(), nn.Flatten(), nn.Linear(24, 5))
    channels = find_channels(net, SHAPE)
    assert len(channels.widths) == UNITS * GROUPS
    config = FirmwareConfig.model_validate({"weights": weights})
    compiler, described, prices = (
        Compiler(channels.graph, channels.widths, settings_of(config)),
        load_board(board),
        PriceList(tmp_path),
    )
    draw = np.random.default_rng(7)
    widths = tuple(draw.integers(5, 24, len(channels.widths)).tolist())
    others = tuple(width + 1 for width in widths)
    _ = compiler.cost(others, described, prices).flash_bytes  # of an image with these kernels and other widths
    linked = dict(compiler._beside)
    predicted = compiler.cost(widths, described, prices)

    graph = ordered(stand_in(channels.graph, widths, channels.widths))
    (tmp_path / "model.tflite").write_bytes(write_tflite(graph, "units"))
    built = firmware.function(tmp_path / "model.tflite", None, config=config, board=board, out_dir=tmp_path)
    footprint = read_json(built.footprint)
    assert predicted.arena_bytes == footprint["arena_bytes"]
    assert predicted.ram_bytes == footprint["ram_bytes"]
    assert predicted.flash_bytes == pytest.approx(footprint["flash_bytes"], rel=0.005)
    assert compiler._beside == linked, "flash and RAM were read off an image with just these widths"
    assert [each.kernel for each in predicted.layers] == [op["kernel"] for op in footprint["ops"]]
    x = draw.integers(-128, 128, (1, *SHAPE), dtype=np.int8)
    profile = profile_network(built.twin, x.tobytes(), described)
    assert profile is not None
    assert predicted.cycles == pytest.approx(sum(op.cycles_modelled for op in profile), rel=0.01)
    for each, op in zip(predicted.layers, profile, strict=True):
        assert each.cycles == pytest.approx(op.cycles_modelled, rel=0.05), each.name
        # Wherever it lies; a value that is clipped or not may cost a misprediction.
        assert each.cycles_zero_wait == pytest.approx(op.cycles_zero_wait, rel=0.001, abs=16), each.name
    for unit in range(UNITS):
        own = [n for n, each in enumerate(predicted.layers) if each.name.startswith(f"{unit}.")]
        assert sum(predicted.layers[n].cycles for n in own) == pytest.approx(
            sum(profile[n].cycles_modelled for n in own), rel=0.01
        ), unit
