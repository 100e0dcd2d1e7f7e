"""Host against device, layer by layer, on a real twin: one broken weight is caught in the right layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hil.fakes.fake_device import FakeDevice, FakeNetwork
from hil.link.device_link import DeviceLink
from hil.virtual.twin import Twin
from pipeline.stage import read_json
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from stages.graph.tflite.writer import write_tflite
from stages.tools.difference import differences, first_difference

BOARD = "nucleo_f767zi"


def artifacts(flashed) -> dict[str, Path]:
    files = {"model": flashed.model, "golden": flashed.golden, "flash": flashed.flash}
    return {**files, "footprint": flashed.firmware.footprint, "twin": flashed.firmware.twin}


def with_broken_weight(graph: Graph, op: int) -> Graph:
    """One weight of this op off by one step of 64."""
    index = graph.ops[op].inputs[1]
    data = np.array(graph.tensors[index].data)
    data.flat[0] = np.int8(int(data.flat[0]) - 64 if data.flat[0] > 0 else int(data.flat[0]) + 64)
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], data=data)
    return replace(graph, tensors=tuple(tensors))


def test_a_good_image_is_bit_identical_in_every_layer(flashed) -> None:
    answer = differences(artifacts(flashed), BOARD, "virtual", 3)
    assert answer.text == f"{BOARD} (virtual): all 4 ops are bit-identical on host and device for 3 inputs"
    assert answer.record["identical"] and answer.record["inputs"] == 3


@pytest.mark.parametrize("op", [0, 2])
def test_a_broken_weight_is_named_by_its_layer(flashed, tmp_path: Path, op: int) -> None:
    broken = with_broken_weight(flashed.graph, op)
    model = tmp_path / "broken.tflite"
    model.write_bytes(write_tflite(broken, "broken"))
    built = firmware.function(model, flashed.dataset, config=FirmwareConfig(), board=BOARD, out_dir=tmp_path)
    inputs = np.load(flashed.golden)["inputs"]
    with Twin(built.twin) as twin:
        found = first_difference(twin.link, flashed.graph, inputs, read_json(built.footprint)["ops"])
    assert found is not None
    assert (found.op, found.kind) == (op, flashed.graph.ops[op].kind)
    wanted = run_graph(flashed.graph, inputs)[flashed.graph.ops[op].outputs[0]][found.input_index]
    got = run_graph(broken, inputs)[flashed.graph.ops[op].outputs[0]][found.input_index]
    assert found.values_different == np.count_nonzero(wanted != got)
    assert (found.device_value, found.host_value) == (got[found.first_at], wanted[found.first_at])
    assert str(found).startswith(f"op {op} ({found.kind} {found.name}, kernel ")


def test_one_wrong_byte_on_a_device_is_found_over_the_wire(flashed) -> None:
    graph = flashed.graph
    inputs = np.load(flashed.golden)["inputs"][:1]
    right = [run_graph(graph, inputs)[op.outputs[0]].tobytes() for op in graph.ops]
    wrong = bytearray(right[1])
    wrong[7] = (wrong[7] + 5) % 256
    seen = (right[0], bytes(wrong), right[2], right[3])
    network = FakeNetwork(infer=lambda data: right[3], tensors=lambda data: seen)
    kernels = [
        {"kernel": f"kernel_{number}", "kind": op.kind, "name": op.name, "ops": [number]}
        for number, op in enumerate(graph.ops)
    ]
    with FakeDevice(network) as device, DeviceLink.open(device.url) as link:
        link.sync()
        found = first_difference(link, graph, inputs, kernels)
        assert "tensor 2" not in device.commands, "what comes after the first difference is not asked for"
    assert found is not None
    assert (found.op, found.values_different, found.first_at, found.kernel) == (1, 1, (7,), "kernel_1")
