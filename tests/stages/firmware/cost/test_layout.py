"""Where a network's code and constants will lie is known from an image of other widths, without linking it."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from boards import load_board
from stages.firmware.cost.compiled import Compiler
from stages.firmware.cost.layout import Layout
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
from stages.nets.channels import find_channels
from tests.stages.firmware.cost.branching import layer

LINE_BYTES = 32


def inverted(inputs: int, outputs: int) -> nn.Sequential:
    wide = 2 * outputs
    return nn.Sequential(layer(inputs, wide, 1), layer(wide, wide, 3, groups=wide), layer(wide, outputs, 1))


def test_code_and_constants_lie_where_an_image_of_other_widths_says(tmp_path: Path) -> None:
    parts = [layer(3, 8, 3, 2), inverted(8, 24), inverted(24, 24), nn.AvgPool2d(16), nn.Flatten(), nn.Linear(24, 5)]
    channels, board = find_channels(nn.Sequential(*parts), (32, 32, 3)), load_board("nucleo_f767zi")
    compiler, prices = Compiler(channels.graph, channels.widths, FirmwareSettings()), PriceList(tmp_path)
    compiler.cost(channels.widths, board, prices)  # has an image built, which is the reference
    (image,) = compiler._images.values()
    model = compiler.model([width - 3 for width in channels.widths])
    fused = [index for index, call in enumerate(model.calls) if call.parts]
    assert len(fused) == 2
    setting, placement = compiler._placed_setting(board, image), compiler._placement(model, board)
    found = prices.of(compiler.tasks([width - 3 for width in channels.widths]), setting, traced=True)
    reference = compiler._reference(image, board, setting, prices)
    layout = Layout(model, placement, board, found, reference)

    linked = compiler._link(model, placement, board).twin
    functions = {symbol.name: symbol.address for symbol in linked.functions}
    objects = {place.address for place in linked.objects.values()}
    assert image.twin.functions != linked.functions
    assert layout._generated == {name: functions[name] for name in model.assembly}
    assert all(address in objects for address, kind in layout._constants.values() if kind == "flash")
    # Alone, a function may have a literal more or less than beside another one.
    there = sorted(address for name, address in functions.items() if name.startswith("fused_"))
    assert all(abs(a - b) < LINE_BYTES for a, b in zip(sorted(layout._fused.values()), there, strict=True))
