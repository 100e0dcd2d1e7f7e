"""A Graph as C: model.h with its sizes, model.c with its weights, its arena and one call per operator.

Ops run in the order in which they stand in the graph, at the offsets of stages/graph/memory/arena_layout.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import StageError
from stages.firmware.config import FrontEndKind
from stages.firmware.fast.calls import fast_call
from stages.firmware.fast.dot import Weights
from stages.firmware.fused_model import Plan, best_plan, plan_of
from stages.firmware.kernels.c_text import c_array, c_comment
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.portable import batch_of, kernel_call
from stages.firmware.kernels.state import state_name
from stages.firmware.placement import Placement
from stages.graph.arithmetic.int16_reference import is_wide
from stages.graph.graph import ITEM_BYTES, Graph, Quantisation, Tensor
from stages.graph.memory.arena_layout import ArenaLayout, arena_layout
from stages.graph.memory.fusion import Chain, FusedOptions
from stages.graph.memory.overlap import Runtime

_MADE_BY = "Made by stages/firmware/model_source.py from a .tflite file; changes here are lost."
_FRONT_ENDS: tuple[FrontEndKind, ...] = ("none", "mfcc", "kws_stream", "log_mel")
_ARRAY = re.compile(r"static const ((?:struct )?\w+ \w+)\[")
_C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t"}
_PORTABLE = 2  # a leanness
_NAME_CHARACTERS = 60  # TensorFlow joins the names of all that it fused


@dataclass(frozen=True, kw_only=True)
class CompiledModel:
    """What the firmware needs to know about a network, before any C is written."""

    graph: Graph  # as it runs: a fused chain is one op
    layout: ArenaLayout
    calls: tuple[KernelCall, ...]
    network: Graph  # as it was given
    runtime: Runtime = "classic"

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """For each op, which ops of the network it is."""
        found: list[tuple[int, ...]] = []
        for op in self.graph.ops:
            start = found[-1][-1] + 1 if found else 0
            length = len(op.options.ops) if isinstance(op.options, FusedOptions) else 1
            found.append(tuple(range(start, start + length)))
        return tuple(found)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self.graph.tensors[index] for index in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.graph.tensors[index] for index in self.graph.outputs)

    @property
    def input_bytes(self) -> int:
        """Of all inputs, one behind the other."""
        return sum(tensor.nbytes for tensor in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.outputs)

    @property
    def state_bytes(self) -> int:
        """What lasts from one inference to the next."""
        return sum(-(-self.graph.tensors[index].nbytes // 32) * 32 for index in self.graph.states)  # see placement.h

    @property
    def constant_bytes(self) -> int:
        """Weights, scaling and parameters as stored."""
        return sum(call.constant_bytes for call in self.calls)

    @property
    def most_code_bytes(self) -> int:
        """A bound on the generated code."""
        return sum(_most_code_bytes(text) for text in self.assembly.values())

    @property
    def assembly(self) -> dict[str, str]:
        """Functions in assembly, each once, by name."""
        return dict(function for call in self.calls for function in call.assembly)

    @property
    def scratch_bytes(self) -> int:
        return max(call.scratch_bytes for call in self.calls)

    @property
    def working_bytes(self) -> int:
        """Everything in RAM that is the network's."""
        return self.layout.arena_bytes + self.scratch_bytes + self.state_bytes

    @property
    def weights_bytes(self) -> int:
        """int8 weights and int32 biases, as the resource model counts them."""
        constants = {i for op in self.graph.ops for i in self.graph.constants_of(op) if op.kind != "RESHAPE"}
        return sum(self.graph.tensors[index].nbytes for index in constants.difference(self.graph.states))


def compile_model(
    graph: Graph,
    *,
    weights: Weights | None = None,
    runtime: Runtime = "classic",
    chains: Sequence[Chain] | None = None,
    leanness: Mapping[int, int] | None = None,
) -> CompiledModel:
    """Choose a kernel for every op and lay out the arena; refuses what the firmware cannot run.

    Without `weights` the kernels are portable C; with 'fast' or 'small' the Cortex-M7's where they can be. `chains`:
    the ops that are fused row-wise with overlap; without it, those for which the arena is smallest. `leanness` of ops
    that shall have less scratch memory: 1 a smaller buffer, 2 the portable kernel.
    """
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        kinds = [graph.tensors[index].dtype for index in tensors]
        if not set(kinds) <= set(_C_TYPES):
            needed = " or ".join(_C_TYPES)
            raise StageError(f"firmware: the network has {role}s of type {', '.join(kinds)}, needed {needed}")
    calls = [kernel_call(graph, index) for index in range(len(graph.ops))]
    if weights is not None:
        calls = [
            calls[i]
            if batch_of(graph, op) > 1 or is_wide(graph, op) or (leanness or {}).get(i) == _PORTABLE
            else fast_call(graph, op, f"op_{i}", weights, is_lean=bool((leanness or {}).get(i))) or calls[i]
            for i, op in enumerate(graph.ops)
        ]
    if runtime == "classic":
        plan = Plan(graph, tuple(calls), arena_layout(graph))
    else:
        plan = best_plan(graph, calls, weights) if chains is None else plan_of(graph, calls, weights, chains)
    return CompiledModel(graph=plan.graph, layout=plan.layout, calls=plan.calls, network=graph, runtime=runtime)


def model_header(
    model: CompiledModel, name: str, front_end: FrontEndKind, placement: Placement, more_macros: str = ""
) -> str:
    """model.h"""
    spill = placement.spill
    arena_bytes = spill.first_bytes + spill.second_bytes if spill else model.layout.arena_bytes
    grid = model.outputs[0].quantisation or Quantisation((1.0,), (0,))
    milli_q32 = round(grid.scale[0] * 1000 * 2**32)
    steps = min(2 ** (8 * ITEM_BYTES[model.outputs[0].dtype]) - 1, 2**16 - 1)
    if milli_q32 * steps >= 2**63:
        most = f"needed below {8000 if steps == 255 else 30}"
        raise StageError(f"firmware: output scale {grid.scale[0]:g} is too large to print, {most}")
    described = [c_comment(" and ".join(map(_describe, tensors))) for tensors in (model.inputs, model.outputs)]
    return f"""/* {_MADE_BY} */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#define MODEL_NAME "{name}"
#define MODEL_OPS {len(model.calls)}u
#define MODEL_INPUT_BYTES {model.input_bytes}u {described[0]}
#define MODEL_OUTPUT_BYTES {model.output_bytes}u {described[1]}
#define MODEL_ARENA_BYTES {arena_bytes}u
#define MODEL_OUTPUT_ZERO_POINT ({grid.zero_point[0]})
#define MODEL_OUTPUT_MILLI_Q32 INT64_C({milli_q32}) /* output scale in thousandths, times 2^32 */

/* What stands before the network: nothing, features of a clip, or of a stream. */
#define MODEL_FRONT_END {_FRONT_ENDS.index(front_end)}
#define MODEL_FRONT_END_STREAM {_FRONT_ENDS.index("kws_stream")}

{more_macros}{_result_macros(model)}/* Both point into the arena; an inference overwrites the input. */
{accessors(model)}
void model_invoke(void);
{reset_declaration(model)}
#endif
"""


def _result_macros(model: CompiledModel) -> str:
    """What a host is told of the outputs in words: the first of them, where it is not one of int8 only."""
    first = model.outputs[0]
    lines = []
    if len(model.outputs) > 1:
        lines.append(f"#define MODEL_RESULTS {first.elements}u /* of the first output */")
    if first.dtype != "int8":
        lines.append(f"#define MODEL_RESULT_TYPE {_C_TYPES[first.dtype]}")
        lines += [f"#define MODEL_RESULTS {first.elements}u"] if len(model.outputs) == 1 else []
    return "\n".join([*lines, "", ""]) if lines else ""


def accessors(model: CompiledModel) -> str:
    """Declarations: without an argument where there is one input or output, else with its number."""
    lines = []
    for role, tensors in (("input", model.inputs), ("output", model.outputs)):
        count = f"MODEL_{role.upper()}S"
        if len(tensors) > 1:
            lines += [f"#define {count} {len(tensors)}u", f"extern const uint32_t {count[:-1]}_SIZES[{count}];"]
        lines.append(f"{_accessor_head(role, tensors)};")
    return "\n".join([*lines, ""])


def reset_declaration(model: CompiledModel) -> str:
    if not model.graph.states:
        return ""
    return """
/* Back to the state before the first inference; to be called before that one, too. */
#define MODEL_HAS_STATE 1
void model_reset(void);
"""


def _accessor_head(role: str, tensors: Sequence[Tensor]) -> str:
    types = {_C_TYPES[tensor.dtype] for tensor in tensors}
    c_type = f"{'' if role == 'input' else 'const '}{types.pop() if len(types) == 1 else 'void'}"
    return f"{c_type} *model_{role}({'void' if len(tensors) == 1 else 'uint32_t index'})"


def model_source(model: CompiledModel, placement: Placement, *, marks: bool = True) -> str:
    """model.c; with `marks`, the profiler's stand between the ops, and each op's output can be found."""
    headers = {header for call in model.calls for header in call.headers} | {"model.h", "placement.h"}
    headers |= {"prof.h", "tensor.h"} if marks else set()
    return "\n".join(
        [
            f"/* {_MADE_BY} */",
            *(f'#include "{header}"' for header in sorted(headers)),
            *(["", "#include <string.h>"] if model.graph.states else []),
            "",
            *(_constants(model, placement, index) for index in range(len(model.calls))),
            *_memory(model, placement),
            "",
            *(call.function for call in model.calls if call.function),
            *_accessor(model, placement, "input", model.graph.inputs),
            *_accessor(model, placement, "output", model.graph.outputs),
            *_reset(model),
            "void model_invoke(void)",
            "{",
            *(line for index in range(len(model.calls)) for line in _invocation(model, placement, index, marks)),
            *(["    prof_mark(MODEL_OPS);"] if marks else []),
            "}",
            "",
            *(_result_places(model, placement) if marks else []),
        ]
    )


def _memory(model: CompiledModel, placement: Placement) -> list[str]:
    """The arena, in one part or two, and what kernels use while they run."""
    scratch = "".join(f"    {call.scratch}\n" for call in model.calls if call.scratch)
    spill = placement.spill
    lines = ["/* Which bytes of the arena are which activation, one after the other:"]
    lines += [f" * {line}" for line in _map(model, placement)]
    lines += [
        " */",
        f"static int8_t arena[{spill.first_bytes if spill else model.layout.arena_bytes}] {placement.macro};",
    ]
    if spill:
        lines.append(f"static int8_t second_arena[{spill.second_bytes}] {spill.macro};")
    if scratch:
        lines.append(f"static union {{\n{scratch}}} scratch {placement.scratch_macro or placement.macro};")
    return [*lines, *_states(model, placement)]


def _result_places(model: CompiledModel, placement: Placement) -> list[str]:
    """Where each operator's output lies, for the command `tensor`."""
    results = [op.outputs[0] for op in model.graph.ops]
    rows = [
        f"    {{{placement.pointer(result, model.layout.offsets)}, {model.graph.tensors[result].nbytes}u}},"
        for result in results
    ]
    return ["const struct tensor_place TENSOR_PLACES[MODEL_OPS] = {", *rows, "};", ""]


def model_assembly(model: CompiledModel) -> str:
    """model.S: what the network needs of the generated inner loops; empty if it needs none."""
    if not model.assembly:
        return ""
    return f"@ {_MADE_BY}\n    .syntax unified\n    .thumb\n    .cpu cortex-m7\n\n" + "\n".join(model.assembly.values())


def _most_code_bytes(assembly: str) -> int:
    """A bound: each line that is no label is one instruction, or takes less space than one."""
    return 4 * sum(line.startswith("    ") for line in assembly.splitlines())


def _accessor(model: CompiledModel, placement: Placement, role: str, tensors: Sequence[int]) -> list[str]:
    own = [model.graph.tensors[index] for index in tensors]
    places = [placement.pointer(index, model.layout.offsets) for index in tensors]
    head = _accessor_head(role, own)
    cast = "" if head.removeprefix("const ").startswith("int8_t") else "(void *)"
    if len(own) == 1:
        return [head, "{", f"    return {cast}{places[0]};", "}", ""]
    count = f"MODEL_{role.upper()}S"
    return [
        f"const uint32_t {count[:-1]}_SIZES[{count}] = {{{', '.join(f'{tensor.nbytes}u' for tensor in own)}}};",
        "",
        head,
        "{",
        f"    static int8_t *const places[{count}] = {{{', '.join(places)}}};",
        f"    return {cast}places[index];",
        "}",
        "",
    ]


def _reset(model: CompiledModel) -> list[str]:
    """model_reset(), for a network that has a state."""
    if not model.graph.states:
        return []
    lines = ["void model_reset(void)", "{"]
    for index in model.graph.states:
        name, data = state_name(index), model.graph.tensors[index].data
        assert data is not None
        values = set(data.view(np.int8).reshape(-1).tolist())
        if len(values) == 1:
            lines.append(f"    memset({name}, {values.pop()}, sizeof {name});")
        else:
            lines.append(f"    memcpy({name}, {name}_first, sizeof {name});")
    return [*lines, "}", ""]


def _states(model: CompiledModel, placement: Placement) -> list[str]:
    """The arrays that last, and their first values where these are not all the same."""
    lines = []
    for index in model.graph.states:
        tensor, name = model.graph.tensors[index], state_name(index)
        assert tensor.data is not None
        data = np.ascontiguousarray(tensor.data).reshape(-1).view(np.int8)
        lines += ["", c_comment(f"{tensor.name} {_describe(tensor)}")]
        if len(set(data.tolist())) > 1:
            lines.append(c_array("int8_t", f"{name}_first", data, "its first values").rstrip())
        lines.append(f"static int8_t {name}[{data.size}] {placement.scratch_macro or placement.macro};")
    return lines


def _constants(model: CompiledModel, placement: Placement, index: int) -> str:
    constants = model.calls[index].constants
    if not constants:
        return ""
    if index in placement.ram_weights:  # arrays without `const` are copied to the preferred RAM at start-up
        constants = _ARRAY.sub(r"static \1[", constants)
    return f"{c_comment(op_title(model, index))}\n{constants}"


def op_title(model: CompiledModel, index: int) -> str:
    """What an operator is: number, kind, name, shapes, scales and zero points."""
    op = model.graph.ops[index]
    shapes = [_describe(model.graph.tensors[i]) for i in (*model.graph.activations_of(op), op.outputs[0])]
    return f"{index} {op.kind} {op.name[:_NAME_CHARACTERS]}: {' + '.join(shapes[:-1])} -> {shapes[-1]}"


def _map(model: CompiledModel, placement: Placement) -> Iterator[str]:
    graph = model.graph
    for tensor in (*graph.inputs, *(output for op in graph.ops for output in op.outputs)):
        start = placement.pointer(tensor, model.layout.offsets).removeprefix("&")
        name = c_comment(graph.tensors[tensor].name[:_NAME_CHARACTERS])[3:-3]
        yield f"{start} and {graph.tensors[tensor].nbytes} B: {name} {_describe(graph.tensors[tensor])}"


def _invocation(model: CompiledModel, placement: Placement, index: int, marks: bool) -> list[str]:
    call = model.calls[index]
    places = [placement.pointer(tensor, model.layout.offsets) for tensor in call.activations]
    lines = [f"    prof_mark({index});"] if marks else []
    lines.append(f"    {c_comment(f'{op_title(model, index)}, {call.kernel}')}")
    if call.kernel == "alias":
        assert len(set(places)) == 1, "the layout gives an alias the place of its source"
    else:
        lines.append("    " + call.call.format(*places))
    return lines


def _describe(tensor: Tensor) -> str:
    grid = tensor.quantisation
    shape = "x".join(map(str, tensor.shape))
    return f"{shape} (scale {grid.scale[0]:.6g}, zero point {grid.zero_point[0]})" if grid else shape
