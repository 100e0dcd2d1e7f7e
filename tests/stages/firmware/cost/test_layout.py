"""Where a network's code and constants will lie is known from an image of other widths, without linking it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from boards import load_board
from hil.virtual.replay.lines import LOAD, Piece
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.cost.compiled import Compiler
from stages.firmware.cost.invoke_code import own_events
from stages.firmware.cost.layout import Layout
from stages.firmware.cost.own_code import RAM, own_code
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
from stages.firmware.cost.trace import constant_names
from stages.firmware.fast.dot import Weights
from stages.nets.channels import find_channels
from tests.stages.firmware.cost.branching import layer


def inverted(inputs: int, outputs: int) -> nn.Sequential:
    wide = 2 * outputs
    return nn.Sequential(layer(inputs, wide, 1), layer(wide, wide, 3, groups=wide), layer(wide, outputs, 1))


def loaded(events: bytes, pieces: Sequence[Piece]) -> set[int]:
    """Lines of constants, where they are now."""
    words = [int(word) & ~3 for word in np.frombuffer(events, np.uint32) if int(word) & 3 == LOAD]
    held = ((word, piece) for word in words for piece in pieces if piece.start <= word < piece.end)
    return {(piece.now + word - piece.start) // 32 for word, piece in held if piece.kind == "flash"}


@pytest.mark.parametrize("weights", ["fast", "small"])
def test_code_and_constants_lie_where_an_image_of_other_widths_says(tmp_path: Path, weights: Weights) -> None:
    parts = [layer(3, 8, 3, 2), inverted(8, 24), inverted(24, 24), nn.AvgPool2d(16), nn.Flatten(), nn.Linear(24, 5)]
    channels, board = find_channels(nn.Sequential(*parts), (32, 32, 3)), load_board("nucleo_f767zi")
    compiler, prices = Compiler(channels.graph, channels.widths, FirmwareSettings(weights=weights)), PriceList(tmp_path)
    compiler.cost(channels.widths, board, prices)  # has an image built, which is the reference
    (image,) = compiler._images.values()
    model = compiler.model([width - 3 for width in channels.widths])
    fused = [index for index, call in enumerate(model.calls) if call.parts]
    assert len(fused) == 2
    setting, placement = compiler._placed_setting(board, image), compiler._placement(model, board)
    found = prices.of(compiler.tasks([width - 3 for width in channels.widths]), setting, traced=True)
    reference = compiler._reference(image, board, setting, prices)
    own = own_code(model, placement, Toolchain(optimise=setting.optimise, path_names={}, fpu=board.fpu))
    layout = Layout(model, placement, board, found, reference, own)

    other = compiler._link(model, placement, board, traced=True)
    linked = other.twin
    functions = {symbol.name: symbol for symbol in linked.functions}
    assert image.twin.objects != linked.objects
    assert layout._generated == {name: functions[name].address for name in model.assembly}
    assert {symbol.name for symbol in layout._own.functions if symbol.name.startswith("fused_")}
    assert all(functions[symbol.name] == symbol for symbol in layout._own.functions if symbol.size_bytes)
    there = [linked.objects[name].address for call in model.calls for name in constant_names(call)]
    places = [address for address, kind in layout._constants.values() if kind == "flash"]
    assert places == [address for address in there if address < RAM]  # others are copied
    invoke = functions["model_invoke"].address
    assert len(own_events(layout._own, invoke, len(model.calls))) == len(model.calls), "model_invoke was not understood"
    assert layout._bulk_start() == linked.sections[".bulk"].address
    between = next(layout.touches())
    # "]\r\n" lies in the end of one of three replies: the linker's choice, by the digest that one of them has.
    assert len(loaded(between.events, between.pieces) ^ loaded(other.between, [Piece(0, RAM, 0, "flash")])) <= 2
