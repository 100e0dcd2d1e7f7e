"""The loops as the sources of a "network": model.h, model.c and model.S, which an image can be built around."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stages.tools.modelling.loops import BUFFER_BYTES, Loop

_HEADER = """#ifndef MODEL_H
#define MODEL_H
#include <stdint.h>
#define MODEL_NAME "loops"
#define MODEL_OPS {ops}u
#define MODEL_INPUT_BYTES 4u
#define MODEL_OUTPUT_BYTES 4u
#define MODEL_ARENA_BYTES 64u
#define MODEL_OUTPUT_ZERO_POINT 0
#define MODEL_OUTPUT_MILLI_Q32 INT64_C(4294967296)
#define MODEL_FRONT_END 0
#define MODEL_FRONT_END_STREAM 2
int8_t *model_input(void);
const int8_t *model_output(void);
void model_invoke(void);
#endif
"""
_SOURCE = """#include "model.h"
#include "placement.h"
#include "prof.h"
#include "tensor.h"

{declarations}
static int8_t arena[MODEL_ARENA_BYTES] PLACE_FAST;
#define MAY_BE_UNUSED __attribute__((unused)) /* by the loops of one kind */
MAY_BE_UNUSED static uint32_t near[64] PLACE_FAST;
MAY_BE_UNUSED static uint32_t far[{words}] PLACE_BULK;
MAY_BE_UNUSED static const uint32_t constants[{words}] = {{1}};
const struct tensor_place TENSOR_PLACES[MODEL_OPS] = {{{{arena, 4}}}};

int8_t *model_input(void)
{{
    return arena;
}}

const int8_t *model_output(void)
{{
    return arena;
}}

void model_invoke(void)
{{
{calls}
    prof_mark(MODEL_OPS);
}}
"""
_MEMORY = {"dtcm": "near", "ram": "far", "flash": "constants"}
_ASSEMBLY = """    .syntax unified
    .thumb
    .text
    .thumb_func
    .type loop_leaf, %function
    .p2align 5
loop_leaf:
    bx lr
    .size loop_leaf, .-loop_leaf
"""


def write_loops(loops: Sequence[Loop], folder: Path) -> None:
    """Into a folder of generated sources."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.h").write_text(_HEADER.format(ops=len(loops)))
    declared = [f"void loop_{index}(const void *memory, uint32_t rounds);" for index in range(len(loops))]
    calls = [
        f"    prof_mark({index});\n    loop_{index}({_MEMORY[one.memory]}, {one.rounds}u); /* {one.name} */"
        for index, one in enumerate(loops)
    ]
    text = _SOURCE.format(declarations="\n".join(declared), calls="\n".join(calls), words=BUFFER_BYTES // 4)
    (folder / "model.c").write_text(text)
    (folder / "model.S").write_text(_ASSEMBLY + "".join(_function(index, one) for index, one in enumerate(loops)))


def _function(index: int, loop: Loop) -> str:
    body = "\n".join(f"    {line}" for line in loop.body.splitlines())
    values = "\n".join(f"    movs r{number}, #{number + 1}" for number in range(1, 8))
    return f"""    .global loop_{index}
    .thumb_func
    .type loop_{index}, %function
    .p2align 5
loop_{index}:
    push {{r3-r9, lr}}
    mov r9, r0
    mov r0, r1
{values}
    mov r8, #9
    .p2align 3
1:
{body}
    subs r0, #1
    bne 1b
    pop {{r3-r9, pc}}
    .size loop_{index}, .-loop_{index}
"""
