"""Convolutions and FULLY_CONNECTED layers of `weights: small`: int8 weights as they are, packed bias and scaling, one
loop for layers of any shape (boards/firmware/kernels/small_dot.h).

Weights lie in blocks of four outputs, ready for the loop, where that costs nothing; else in rows, from which the kernel
makes one block after the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from stages.firmware.assembly.dot_loop import CHANNELS, LoopShape, dot_loop_function, header_words, round_taps
from stages.firmware.fast.buffers import line_buffer, run_of
from stages.firmware.fast.packed_channels import PackedChannels, packed_channels
from stages.firmware.fast.scaling import Scaling, exact_scaling
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import weighted_operands, weights_title, window_members
from stages.graph.arithmetic.int8_pointwise import activation_range, zero_point_of
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op

_FEW_WEIGHTS = 4096  # a layer of one pixel takes the loop of two if others do: twice the products, but 0.6 KB less code
_SPARE_WORDS = 2  # behind the activations
_SPARE_BYTES = 4  # behind blocks
_MOST = 2**16 - 1  # of what the structures count in 16 bits
_MATRIX_BYTES, _CONV_BYTES = 48, 76  # sizeof(struct small_matrix), sizeof(struct small_conv_2d)

_Parts = tuple[str, str, Scaling, PackedChannels, tuple[int, int], int]


@dataclass(frozen=True)
class _Layer:
    """The matrix product of a layer."""

    name: str
    title: str
    scaling: Scaling
    channels: PackedChannels
    limits: tuple[int, int]
    zero_point: int  # of the input
    rows: np.ndarray  # outputs x taps, in the order in which bytes 0 and 2 of four meet a pair of activations
    at_once: int  # pixels

    @property
    def outputs(self) -> int:
        return len(self.rows)

    @property
    def taps(self) -> int:
        return self.rows.shape[1] + -self.rows.shape[1] % round_taps(self.at_once)

    @property
    def in_rows(self) -> bool:
        return self.outputs % CHANNELS != 0 or self.taps != self.rows.shape[1]

    @property
    def shape(self) -> LoopShape:
        return LoopShape(self.at_once, *self.limits, self.scaling.some_unshifted)

    def scratch_words(self, run: int) -> int:
        """Headers (of a pixel alone, one), a block, a run of activations."""
        blocks = (-(-self.outputs // CHANNELS) if run > 1 else 1) * header_words(self.scaling.some_unshifted)
        groups = -(-run // self.at_once)
        return blocks + (self.taps if self.in_rows else 0) + groups * self.at_once * self.taps // 2 + _SPARE_WORDS

    def members(self) -> dict[str, object]:
        return {
            "channels": self.channels.members(self.name),
            "weights": f"{self.name}_weights",
            "loop": self.shape.name,
            "outputs": self.outputs,
            "taps": self.taps,
            "row_taps": self.rows.shape[1] if self.in_rows else 0,
            "zero": self.scaling.zero,
            "input_zero_point": self.zero_point,
            "at_once": self.at_once,
            "has_unshifted": int(self.scaling.some_unshifted),
        }

    def _weights(self) -> np.ndarray:
        if self.in_rows:
            return np.pad(self.rows.reshape(-1), (0, self.taps - self.rows.shape[1]))
        blocks = self.rows.reshape(-1, CHANNELS, self.taps // 4, 4).transpose(0, 2, 1, 3)
        return np.pad(np.ascontiguousarray(blocks).reshape(-1), (0, _SPARE_BYTES)).view("<i4")

    def call(
        self, kernel: str, members: dict[str, object], struct_bytes: int, scratch_words: int, op: Op
    ) -> KernelCall:
        weights = self._weights()
        c_type = "int8_t" if self.in_rows else "int32_t"
        constants = f"small_dot_function {self.shape.name};\n"
        constants += c_array(c_type, f"{self.name}_weights", weights, self.title)
        constants += self.channels.declaration(self.name)
        constants += c_struct(kernel, self.name, {"dot": self.members(), **members})
        return KernelCall(
            kernel=kernel,
            call=f"{kernel}(&{self.name}, {{0}}, scratch.{self.name}, {{1}});",
            constants=constants,
            constant_bytes=weights.nbytes + self.channels.codes.nbytes + struct_bytes,
            header="kernels/small_dot.h",
            scratch=f"int32_t {self.name}[{scratch_words}];",
            scratch_bytes=4 * scratch_words,
            activations=(op.inputs[0], op.outputs[0]),
            assembly=((self.shape.name, dot_loop_function(self.shape)),),
        )


def small_call(
    graph: Graph, op: Op, name: str, asked: Collection[int] | None, *, is_lean: bool = False
) -> KernelCall | None:
    """None for dilation, few outputs, and where the codes would not be exact.

    `asked`: numbers of rows that are computed at a time, if not all of them.
    """
    source, weights, result = weighted_operands(graph, op)
    scaling = exact_scaling(graph, op, axis=0)
    channels = scaling and packed_channels(graph, op, scaling)
    outputs = weights.shape[0]
    pixels = result.elements // outputs
    if scaling is None or channels is None or (outputs < CHANNELS and pixels > 1) or outputs > _MOST:
        return None
    assert weights.data is not None
    assert isinstance(op.options, ConvOptions | ActivationOptions)
    limits = activation_range(result, op.options.activation)
    parts = (name, weights_title(weights), scaling, channels, limits, zero_point_of(source))
    if op.kind == "FULLY_CONNECTED" or (weights.shape[1:3] == (1, 1) and op.options.stride == (1, 1)):
        return _matrix(graph, op, parts, asked, is_lean)
    return _convolution(graph, op, parts, is_lean)


def _matrix(graph: Graph, op: Op, parts: _Parts, asked: Collection[int] | None, is_lean: bool) -> KernelCall | None:
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    rows = weights.data.reshape(weights.shape[0], -1)
    depth = rows.shape[1]
    pixels = source.elements // depth
    alone = pixels == 1 and len(rows) >= CHANNELS and (rows.size > _FEW_WEIGHTS or not _others_have_pixels(graph))
    layer = _Layer(*parts, rows, 1 if alone else 2)
    run = _run({rows * result.shape[2] for rows in asked} if asked else {pixels}, layer.taps, is_lean)
    if layer.taps > _MOST or run > _MOST:
        return None
    return layer.call(
        "small_matrix", {"pixels": pixels, "depth": depth, "run": run}, _MATRIX_BYTES, layer.scratch_words(run), op
    )


def _others_have_pixels(graph: Graph) -> bool:
    """Whether the network needs the loop of two pixels anyway."""
    return any(op.kind == "CONV_2D" and graph.tensors[op.outputs[0]].shape[1:3] != (1, 1) for op in graph.ops)


def _run(counts: Collection[int], taps: int, is_lean: bool) -> int:
    """Pixels whose activations fit the buffer; of all numbers that are asked for, no run may have one alone."""
    pixels = max(counts)
    return next(
        n
        for n in range(run_of(pixels, taps, is_lean=is_lean), pixels + 1)
        if pixels == 1 or all(count % n != 1 for count in counts)
    )


def _convolution(graph: Graph, op: Op, parts: _Parts, is_lean: bool) -> KernelCall | None:
    assert isinstance(op.options, ConvOptions)
    _, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    outputs, height, width, channels = weights.shape
    if op.options.dilation != (1, 1):
        return None
    is_apart = channels % 4 == 0
    rows = weights.data.reshape(outputs, height, width * channels)
    if not is_apart:  # pairs of taps of a line; bytes 0 and 2, which meet a pair, are neighbours
        rows = np.pad(rows, ((0, 0), (0, 0), (0, width * channels % 2))).reshape(outputs, -1)
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4))).reshape(outputs, -1, 4)[..., [0, 2, 1, 3]]
    layer = _Layer(*parts, np.ascontiguousarray(rows).reshape(outputs, -1), 2)
    buffer = line_buffer(graph, op, is_lean=is_lean)
    run = _run({result.shape[2]}, layer.taps, is_lean)
    if max(layer.taps, buffer.line_elements, buffer.lines, run) > _MOST:
        return None
    members = {
        "window": window_members(graph, op),
        "line_elements": buffer.line_elements,
        "lines": buffer.lines,
        "run": run,
        "is_apart": int(is_apart),
    }
    words = layer.scratch_words(run) + buffer.lines * buffer.line_elements // 2
    return layer.call("small_conv_2d", members, _CONV_BYTES, words, op)
