"""Host and device layer by layer: the first op whose output differs, by how much, and what ran it.

The host is the int8 reference of stages/graph, bit-identical to TensorFlow Lite Micro. The device runs one inference
for each op and tells the CRC-32 of that op's output right after it; of the first one that differs it sends the bytes.
Ops that are fused row-wise (`firmware.fusion`) are one op on the device: only the output of the last of them exists.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boards import load_board
from hil.link.device_link import DeviceLink
from pipeline.errors import StageError
from pipeline.stage import Answer, Target, read_json
from stages.graph.arithmetic.int8_reference import run_graph, sample_shape
from stages.graph.ends import arrays_of
from stages.graph.graph import Graph
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.measure.golden import read_golden
from stages.measure.input_form import input_form
from stages.measure.session import BoardAccess, open_link

_BITS_A_BYTE = 30  # on the line: two hex digits of ten bits each, with their share of the line's ends
_REPLY_S = 10.0
_APART = "; --set firmware.fusion=none runs its layers one by one"


@dataclass(frozen=True, kw_only=True)
class LayerDifference:
    """Where the two part, for one input."""

    input_index: int
    op: int
    kind: str
    name: str
    kernel: str
    values: int
    values_different: int
    largest_difference: int
    first_at: tuple[int, ...]
    device_value: int
    host_value: int
    ops: tuple[int, ...]  # of the network: several, where they are fused

    def __str__(self) -> str:
        place = ", ".join(map(str, self.first_at))
        return (
            f"op {self.op} ({self.kind} {self.name}, kernel {self.kernel}): {self.values_different} of {self.values}"
            f" values differ, by up to {self.largest_difference}; first at [{place}]: device {self.device_value},"
            f" host {self.host_value} (input {self.input_index}); all ops before it are bit-identical"
            f"{_APART if len(self.ops) > 1 else ''}"
        )


def differences(artifacts: Mapping[str, Path], board: str, source: str, most_inputs: int) -> Answer:
    """What `pipeline diff` prints; the record's `identical` says whether all is well."""
    target = Target(board, "virtual" if source == "virtual" else "hardware")
    graph = simplify(strip_float_edges(read_tflite(artifacts["model"])).graph)  # what firmware compiled
    inputs = read_golden(artifacts["golden"]).inputs[:most_inputs]
    built = read_json(artifacts["footprint"])
    kernels, form = built["ops"], input_form(built, graph)
    access = BoardAccess(first_baud=built["link"]["baud"])
    with open_link(target, load_board(board), read_json(artifacts["flash"]), artifacts["twin"], access) as device:
        found = first_difference(device.link, graph, inputs, kernels, form.sent)
    record: dict[str, Any] = {
        "board": board,
        "source": target.source,
        "ops": len(kernels),
        "inputs": len(inputs),
        "identical": found is None,
        "first_difference": None if found is None else asdict(found),
    }
    same = f"all {len(kernels)} ops are bit-identical on host and device for {len(inputs)} inputs"
    same += _APART.replace("its layers", f"all {len(graph.ops)} layers") if len(kernels) < len(graph.ops) else ""
    return Answer(f"{board} ({target.source}): {same if found is None else found}", record)


def first_difference(
    link: DeviceLink,
    graph: Graph,
    inputs: np.ndarray,
    kernels: list[Mapping[str, Any]],
    as_sent: Callable[[np.ndarray], np.ndarray] = lambda values: values,
) -> LayerDifference | None:
    """None when every op agrees for every input."""
    for index, one in enumerate(inputs):
        # One by one: a network with a state begins each time with its first one, as the device does.
        host = run_graph(graph, [values[np.newaxis] for values in _samples(graph, one)])
        results = [host[graph.ops[chosen["ops"][-1]].outputs[0]][0] for chosen in kernels]
        found = link.on_input(as_sent(one).tobytes(), lambda results=results: _first_op(link, results))
        if found is not None:
            op, device_bytes = found
            return _described(kernels[op], op, index, device_bytes, results[op])
    return None


def _samples(graph: Graph, row: np.ndarray) -> list[np.ndarray]:
    found = zip(graph.inputs, arrays_of(graph, graph.inputs, row), strict=True)
    return [values.reshape(sample_shape(graph.tensors[index])) for index, values in found]


def _first_op(link: DeviceLink, results: Sequence[np.ndarray]) -> tuple[int, bytes] | None:
    for number, result in enumerate(results):
        wanted = result.tobytes()
        seen = link.tensor_crc(number)
        if seen.size_bytes != len(wanted):
            raise StageError(
                f"{link.name}: op {number} has {seen.size_bytes} B, the model {len(wanted)} B; force the firmware step"
            )
        if seen.crc != zlib.crc32(wanted):
            return number, link.tensor(number, _REPLY_S + len(wanted) * _BITS_A_BYTE / link.baud)
    return None


def _described(chosen: Mapping[str, Any], op: int, index: int, device: bytes, host: np.ndarray) -> LayerDifference:
    found = np.frombuffer(device, host.dtype).reshape(host.shape)
    gaps = np.abs(found.astype(np.int64) - host.astype(np.int64))
    first = tuple(int(axis) for axis in np.argwhere(gaps)[0])
    return LayerDifference(
        input_index=index,
        op=op,
        kind=chosen["kind"],
        name=chosen["name"],
        kernel=chosen["kernel"],
        values=host.size,
        values_different=int(np.count_nonzero(gaps)),
        largest_difference=int(gaps.max()),
        first_at=first,
        device_value=int(found[first]),
        host_value=int(host[first]),
        ops=tuple(chosen["ops"]),
    )
