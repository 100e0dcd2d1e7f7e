"""Row-wise fusion: the same bits, only where the arena shrinks, and shown as what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hil.virtual.twin import Twin
from pipeline.stage import read_json
from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import CompiledModel, compile_model, model_source
from stages.firmware.placement import Placement
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.memory.fusion import FusedOptions, Links
from stages.graph.tflite.writer import write_tflite
from stages.tools.difference import first_difference
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.firmware.host_models import build_host_models, tflm_outputs
from tests.stages.firmware.random_networks import random_chains, random_column
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs

KERNELS: tuple[Weights | None, ...] = ("fast", "small", None)
BOARD = "nucleo_f767zi"


def inverted(blocks: int = 2, side: int = 14) -> Graph:
    """Blocks of MobileNet-v2: the first widens the map's channels sixfold, at each stride; then a classifier."""
    builder = Int8Builder(3)
    relu = ConvOptions(activation="relu6")
    x = builder.conv(builder.input(side, side, 3), 8, (3, 3), relu)
    for number in range(blocks):
        y = builder.conv(x, 48, (1, 1), relu)
        stride = (1, 1) if number == 0 else (2, 2)
        y = builder.depthwise(y, (3, 3), ConvOptions(stride=stride, activation="relu6"))
        y = builder.conv(y, 8, (1, 1), ConvOptions())
        x = builder.elementwise("ADD", x, y, ActivationOptions()) if number == 0 else y
    return builder.graph(builder.fully_connected(builder.mean(x, (1, 2), keep=False), 4, ActivationOptions()))


def decoder() -> Graph:
    """Two images of half the size, one enlarged again and joined to the other, with functions of one value between."""
    builder = Builder(4)
    skipped = builder.conv(builder.input(16, 16, 2), 8, (3, 3), ConvOptions())
    x = builder.pool("MAX_POOL_2D", skipped, PoolOptions((2, 2), (2, 2)))
    x = builder._like(builder.unary("HARD_SWISH", builder.conv(x, 16, (3, 3), ConvOptions())), skipped)
    x = builder.plain("RESIZE_NEAREST_NEIGHBOR", (x, builder.integers([16, 16])), (1, 16, 16, 16), options=(0, 0))
    x = builder.conv(builder.concatenate(3, x, skipped), 6, (3, 3), ConvOptions())
    x = builder.plain("LEAKY_RELU", (x,), builder.tensors[x].shape, options=(0.1,))
    return builder.graph(builder.conv(x, 2, (1, 1), ConvOptions()))


def chains(model: CompiledModel) -> list[tuple[int, ...]]:
    return [own for own in model.numbers if len(own) > 1]


@pytest.mark.parametrize("weights", KERNELS)
def test_a_fused_block_has_a_smaller_arena(weights: Weights | None) -> None:
    graph = inverted()
    plain = compile_model(graph, weights=weights, runtime="overlap", chains=())
    model = compile_model(graph, weights=weights, runtime="overlap")
    assert chains(model) == [(1, 2, 3, 4), (5, 6)]
    assert model.layout.arena_bytes < 0.55 * plain.layout.arena_bytes
    assert chains(compile_model(graph, weights=weights)) == []


def test_nothing_is_fused_where_the_arena_would_stay() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(12, 12, 16), 4, (1, 1), ConvOptions())  # the input is the peak in any case
    graph = builder.graph(builder.depthwise(x, (3, 3), ConvOptions()))
    assert chains(compile_model(graph, weights="fast", runtime="overlap")) == []


def test_bands_grow_as_far_as_the_arena_allows() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(24, 24, 1), 16, (1, 1), ConvOptions())  # 576 B and 9,216 B
    x = builder.conv(x, 2, (1, 1), ConvOptions())
    x = builder.conv(x, 6, (1, 1), ConvOptions())  # 3,456 B: the peak once the first two are fused
    graph = builder.graph(x)
    model = compile_model(graph, weights="fast", runtime="overlap")
    (options,) = [op.options for op in model.graph.ops if isinstance(op.options, FusedOptions)]
    least = compile_model(graph, weights="fast", runtime="overlap", chains=[replace(options.chain, band=1)])
    assert options.chain.band > 1
    assert model.layout.arena_bytes == least.layout.arena_bytes


@pytest.mark.slow
def test_random_columns_have_the_bits_of_tflm_in_chains_of_any_kind(tmp_path: Path) -> None:
    graphs = [random_column(seed) for seed in range(100, 118)]
    models = []
    for number, graph in enumerate(graphs):
        weights = KERNELS[number % 3]
        own = random_chains(graph, weights, number)
        models.append(compile_model(graph, weights=weights, runtime="overlap", chains=own))
    assert sum(len(chains(model)) for model in models) > 12
    built = build_host_models(graphs, tmp_path, models=models)
    for number, graph in enumerate(graphs):
        inputs = random_inputs(graph, 3, seed=number)
        assert np.array_equal(built.run(number, inputs), tflm_outputs(graph, inputs)), number


def test_a_whole_block_has_the_bits_of_tflm_in_bands_of_any_height(tmp_path: Path) -> None:
    graph = inverted(1)
    (chain,) = [c for c in Links(graph).starting_at(range(len(graph.ops)), 1) if len(c.ops) == 4]
    models = [
        compile_model(graph, weights=weights, runtime="overlap", chains=[replace(chain, band=band)])
        for band in (1, 2, 3, 14)
        for weights in KERNELS
    ]
    built = build_host_models([graph] * len(models), tmp_path, models=models)
    inputs = random_inputs(graph, 3, seed=1)
    expected = tflm_outputs(graph, inputs)
    for number in range(len(models)):
        assert np.array_equal(built.run(number, inputs), expected), number


def test_an_image_enlarged_row_by_row_has_the_bits_of_tflm_wherever_its_chain_begins(tmp_path: Path) -> None:
    graph = decoder()
    order = range(len(graph.ops))
    longest = [found[-1] for start in order if (found := list(Links(graph).starting_at(order, start)))]
    models = [
        compile_model(graph, weights=KERNELS[number % 3], runtime="overlap", chains=[replace(chain, band=band)])
        for number, (chain, band) in enumerate(zip(longest, (1, 2, 3, 5, 7, 2, 1), strict=False))
    ]
    built = build_host_models([graph] * len(models), tmp_path, models=models)
    inputs = random_inputs(graph, 2, seed=1)
    expected = tflm_outputs(graph, inputs)
    for number in range(len(models)):
        assert np.array_equal(built.run(number, inputs), expected), chains(models[number])
    plain = compile_model(graph, weights="fast", runtime="overlap", chains=())
    assert compile_model(graph, weights="fast", runtime="overlap").layout.arena_bytes < 0.7 * plain.layout.arena_bytes


def test_the_generated_code_names_the_layers_and_needs_their_kernels() -> None:
    model = compile_model(inverted(1), weights="fast", runtime="overlap")
    text = model_source(model, Placement(region="dtcm", macro="PLACE_FAST"))
    assert "fused fast_matrix+fast_depthwise+fast_matrix+fast_add */" in text
    assert '#include "kernels/band.h"\n' in text
    assert text.index("static union {") < text.index("void fused_1(") < text.index("void model_invoke(void)")
    assert text.count("prof_mark(") == len(model.calls) + 1


@pytest.mark.slow
def test_footprint_and_diff_see_one_op_or_all_of_them(tmp_path: Path) -> None:
    graph = inverted()
    inputs = random_inputs(graph, 2, seed=0)
    (tmp_path / "model.tflite").write_bytes(write_tflite(graph, "test"))
    seen = {}
    for fusion in ("rows", "none"):
        config = FirmwareConfig(fusion=fusion)
        folder = tmp_path / fusion
        built = firmware.function(tmp_path / "model.tflite", None, config=config, board=BOARD, out_dir=folder)
        ops = seen[fusion] = read_json(built.footprint)["ops"]
        with Twin(built.twin) as twin:
            assert first_difference(twin.link, graph, inputs, ops) is None
    assert [op["ops"] for op in seen["none"]] == [[number] for number in range(len(graph.ops))]
    assert [op["ops"] for op in seen["rows"]] == [[0], [1, 2, 3, 4], [5, 6], [7], [8], [9]]
    assert seen["rows"][1]["kernel"] == "fused fast_matrix+fast_depthwise+fast_matrix+fast_add"
    assert seen["rows"][1]["kind"] == "CONV_2D+DEPTHWISE_CONV_2D+CONV_2D+ADD"
