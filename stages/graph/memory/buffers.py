"""Which activations share memory: the one place where order, layout and resource model look it up.

A buffer is what one or several activations use under different names. Two things cost no memory of their own:

  RESHAPE   its output is its input's buffer, under another shape; chains of them, and those of the network's inputs and
            outputs, too. What ASSIGN_VARIABLE copies into a state is its own result.
  in place  ADD, MUL and the elementwise functions write over an operand that nobody needs afterwards, if it has as many
            bytes as the result. That is safe because such a kernel computes result[i] from operand[i] alone and stores
            it after it has read it: TensorFlow Lite Micro's reference kernels and ours are one loop over i. An operand
            that is broadcast is smaller than the result, so it is never the one written over, and the other operand,
            which is read at several i, lies elsewhere. TensorFlow Lite Micro's own planner does not overlap them, but
            takes offsets from a plan as they are; its RESHAPE does not copy where both pointers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stages.graph.graph import FLOAT_KINDS, Graph, Op, Tensor

ALIASES = frozenset({"RESHAPE", "ASSIGN_VARIABLE"})  # the output is the input's buffer
OF_ONE = frozenset({"RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "TANH", "LEAKY_RELU", "ABS", "RSQRT", "ELU"}).union(
    FLOAT_KINDS
)
# The output may replace an operand.
IN_PLACE = frozenset({"ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"}) | OF_ONE


@dataclass(frozen=True)
class OpBuffers:
    """What one op does to the buffers."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]  # those it opens: none for a RESHAPE
    may_replace: tuple[int, ...]  # of those it reads: the result fits over them, should it be the last to need them
    needs: int  # bit mask of the ops that have to run before


@dataclass(frozen=True)
class Buffers:
    """The buffers of a graph; sets of ops are bit masks over their numbers in the graph."""

    tensors: tuple[tuple[int, ...], ...]  # the activations in each buffer, the one that opens it first
    ops: tuple[OpBuffers, ...]
    readers: tuple[int, ...]  # per buffer
    makers: tuple[int, ...]  # per buffer; 0: a network's input, there from the start
    kept: frozenset[int]  # alive to the end: the network's outputs, and inputs that nobody reads

    def sizes(self, tensor_bytes: Sequence[float]) -> list[float]:
        """Bytes of each buffer."""
        return [max(tensor_bytes[tensor] for tensor in names) for names in self.tensors]

    def replaced(self, op: int, done: int, sizes: Sequence[float]) -> int | None:
        """The buffer over which `op` writes its result when the ops in `done` have run; None: it opens a new one."""
        for buffer in self.ops[op].may_replace:
            is_last_reader = self.readers[buffer] & ~done == 1 << op
            if is_last_reader and buffer not in self.kept and sizes[buffer] == sizes[self.ops[op].writes[0]]:
                return buffer
        return None

    def is_alive(self, buffer: int, done: int) -> bool:
        """Whether somebody still needs it once the ops in `done` have run."""
        is_made = self.makers[buffer] == 0 or self.makers[buffer] & done != 0
        return is_made and (buffer in self.kept or self.readers[buffer] & ~done != 0)


def activation_bytes(tensor: Tensor) -> int:
    """Bytes on the device: float32 tensors of a torch graph become int8 there."""
    return tensor.elements if tensor.dtype == "float32" else tensor.nbytes


def buffers_of(graph: Graph, *, prefers_last: bool = False) -> Buffers:
    """Follow the ops in the order in which they stand; `prefers_last`: of several operands, replace the last."""
    buffer_of: dict[int, int] = {}
    tensors: list[list[int]] = []
    makers: list[int] = []
    readers: list[int] = []
    writer: dict[int, int] = {}  # tensor -> mask of the op that computes it
    touched: dict[int, int] = {}  # state -> mask of the last op that used it
    ops: list[OpBuffers] = []

    def open_buffer(tensor: int, maker: int) -> int:
        buffer_of[tensor] = len(tensors)
        tensors.append([tensor])
        makers.append(maker)
        readers.append(0)
        return buffer_of[tensor]

    for tensor in dict.fromkeys(graph.inputs):
        open_buffer(tensor, 0)
    for number, op in enumerate(graph.ops):
        bit = 1 << number
        sources = list(graph.activations_of(op))
        reads = tuple(dict.fromkeys(buffer_of[tensor] for tensor in sources))
        writes: list[int] = []
        for buffer in reads:
            readers[buffer] |= bit
        for tensor in op.outputs:
            writer[tensor] = bit
            if op.kind in ALIASES and sources:
                buffer_of[tensor] = buffer_of[sources[0]]
                tensors[buffer_of[tensor]].append(tensor)
            else:
                writes.append(open_buffer(tensor, bit))
        operands = replaceable(graph, op)
        fitting = tuple(dict.fromkeys(buffer_of[t] for t in (reversed(operands) if prefers_last else operands)))
        before = {writer[tensor] for tensor in sources if tensor in writer}
        for state in (index for index in op.inputs if index >= 0 and graph.tensors[index].is_state):
            before |= {touched[state]} if state in touched else set()  # what uses a state keeps its order
            touched[state] = bit
        needs = sum(before)
        ops.append(OpBuffers(reads, tuple(writes), fitting, needs))
    kept = {buffer_of[tensor] for tensor in graph.outputs if tensor in buffer_of}
    kept |= {buffer for buffer, maker in enumerate(makers) if maker == 0 and readers[buffer] == 0}
    return Buffers(tuple(map(tuple, tensors)), tuple(ops), tuple(readers), tuple(makers), frozenset(kept))


def replaceable(graph: Graph, op: Op) -> tuple[int, ...]:
    """The operands over which the result of `op` fits element by element."""
    between_bytes = op.kind == "QUANTIZE" and graph.tensors[op.inputs[0]].dtype != graph.tensors[op.outputs[0]].dtype
    if op.kind not in IN_PLACE and not between_bytes:
        return ()
    result = graph.tensors[op.outputs[0]]
    operands = ((tensor, graph.tensors[tensor]) for tensor in graph.activations_of(op))
    return tuple(
        index
        for index, tensor in operands
        if tensor.elements == result.elements and activation_bytes(tensor) == activation_bytes(result)
    )
