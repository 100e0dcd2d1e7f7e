"""The files of a compiled network's folder that are not the network: header, CMake project, example, README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.firmware.build.toolchain import CORE_FLAGS
from stages.firmware.kernels.c_text import c_comment
from stages.firmware.model_source import CompiledModel, accessors, op_title, reset_declaration
from stages.graph.graph import Tensor

_WARNINGS = "-Wall -Wextra -Wconversion -Wshadow"
_NEEDED = "-std=c11 -fwrapv"  # sums wrap as in the reference kernels, instead of being undefined
_SPEED = "-O3 -fno-tree-reassoc -ffunction-sections -fdata-sections"


def header(model: CompiledModel, name: str) -> str:
    """model.h"""
    return f"""{c_comment(f"model.h: {name} as C, made by `pipeline compile`; changes here are lost.")}
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

/* real value = scale * (int8 value - zero point) */
{_tensor_macros("INPUT", model.inputs)}
{_tensor_macros("OUTPUT", model.outputs)}

#ifdef __cplusplus
extern "C" {{
#endif

{_accessors(model)}

/* One inference. No heap, no recursion; not reentrant: there is one arena. */
void model_invoke(void);
{reset_declaration(model)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _accessors(model: CompiledModel) -> str:
    """As model.h of the firmware declares them, with what a user should know."""
    before = "/* Write MODEL_INPUT_BYTES here before each inference, which overwrites them. */"
    after = "/* Valid from the end of an inference until the next input is written. */"
    if len(model.inputs) > 1:
        before = "/* Write MODEL_INPUT_SIZES[index] bytes here before each inference, which overwrites them. */"
    lines, found = accessors(model).strip().splitlines(), [before]
    for line in lines:
        found += ["", after, line] if "model_output" in line else [line]
    return "\n".join(found)


def _tensor_macros(role: str, tensors: Sequence[Tensor]) -> str:
    """With a number behind INPUT or OUTPUT where there are several; MODEL_..._BYTES without one is then the sum."""
    lines = []
    for number, tensor in enumerate(tensors):
        name, shape = f"{role}_{number}" if len(tensors) > 1 else role, " x ".join(map(str, tensor.shape))
        lines.append(f"#define MODEL_{name}_BYTES {tensor.nbytes}u {c_comment(f'{shape}, {tensor.name}')}")
        if tensor.quantisation:
            lines.append(f"#define MODEL_{name}_SCALE {tensor.quantisation.scale[0]!r}f")
            lines.append(f"#define MODEL_{name}_ZERO_POINT ({tensor.quantisation.zero_point[0]})")
    if len(tensors) > 1:
        lines.append(f"#define MODEL_{role}_BYTES {sum(tensor.nbytes for tensor in tensors)}u")
    return "\n".join(lines)


def placement_header() -> str:
    """placement.h"""
    return """/* placement.h: where arena and scratch memory go. To put them into a section of your linker script:
 *   -DPLACE_FAST='__attribute__((section(".dtcm"), aligned(32)))'
 */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#ifndef PLACE_FAST
#define PLACE_FAST __attribute__((aligned(32)))
#endif

#endif
"""


def main_source(model: CompiledModel) -> str:
    """example/main.c"""
    reads = ["fread(model_input(), 1, MODEL_INPUT_BYTES, stdin) == MODEL_INPUT_BYTES"]
    if len(model.inputs) > 1:
        place = "fread(model_input({0}), 1, MODEL_INPUT_{0}_BYTES, stdin) == MODEL_INPUT_{0}_BYTES"
        reads = [place.format(number) for number in range(len(model.inputs))]
    writes = ["fwrite(model_output(), 1, MODEL_OUTPUT_BYTES, stdout) != MODEL_OUTPUT_BYTES"]
    if len(model.outputs) > 1:
        place = "fwrite(model_output({0}), 1, MODEL_OUTPUT_{0}_BYTES, stdout) != MODEL_OUTPUT_{0}_BYTES"
        writes = [place.format(number) for number in range(len(model.outputs))]
    wait = " &&\n           "
    reset = "    model_reset();\n" if model.graph.states else ""
    return f"""/* Inputs from stdin, outputs to stdout, as raw {_raw(model)} values. */
#include <stdio.h>

#include "model.h"

int main(void)
{{
{reset}    while ({wait.join(reads)}) {{
        model_invoke();
        if ({f" ||{chr(10)}            ".join(writes)}) {{
            return 1;
        }}
    }}
    return 0;
}}
"""


def _raw(model: CompiledModel) -> str:
    return " and ".join(dict.fromkeys(tensor.dtype for tensor in (*model.inputs, *model.outputs)))


def cmake_lists(sources: Mapping[str, Sequence[str]], *, has_assembly: bool) -> str:
    """CMakeLists.txt"""
    fast = ["cortex_m7/model.c", *(["cortex_m7/model.S"] if has_assembly else []), *sources["cortex_m7"]]
    portable = ["portable/model.c", *sources["portable"]]
    options = ";".join([*_NEEDED.split(), *_SPEED.split(), *_WARNINGS.split()])
    return f"""cmake_minimum_required(VERSION 3.16)
project(model C ASM)

# As part of another project: add_subdirectory(this_folder), then target_link_libraries(yours model).
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "cortex-m7")
  add_library(model STATIC {" ".join(fast)})
else()
  add_library(model STATIC {" ".join(portable)})
  add_executable(model_example example/main.c)
  target_link_libraries(model_example model)
endif()
target_include_directories(model PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options(model PRIVATE $<$<COMPILE_LANGUAGE:C>:{options}>)
"""


def toolchain_file() -> str:
    """cortex_m7.cmake"""
    flags = " ".join(CORE_FLAGS)
    return f"""# cmake -B build -DCMAKE_TOOLCHAIN_FILE=cortex_m7.cmake
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex-m7)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "{flags}")
set(CMAKE_ASM_FLAGS_INIT "{flags}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
"""


def host_line(sources: Mapping[str, Sequence[str]]) -> str:
    """How to build the example without CMake."""
    return f"gcc {_NEEDED} -O2 -I. example/main.c portable/model.c {' '.join(sources['portable'])} -o model_example"


_README = """# {name} as C

One int8 network, ahead of time: no interpreter, no heap, no recursion. Results are bit-identical to those of TensorFlow
Lite Micro's reference kernels, on the Cortex-M7 (`cortex_m7/`) as on the host (`portable/`).

```c
{usage}
```

## To build
    cmake -B build -DCMAKE_TOOLCHAIN_FILE=cortex_m7.cmake && cmake --build build   # libmodel.a for the Cortex-M7
    cmake -B build_host && cmake --build build_host                                # and for the host
    {host_line}

`model_example` takes raw {raw} inputs from stdin and writes outputs to stdout. `-fwrapv` is needed for right results.
`placement.h` says how to put the arena into tightly coupled memory, where it is fastest.

## What it takes (Cortex-M7)
| | |
|---|---|
{rows}

`ram_bytes` is arena and scratch memory, without the stack; `constant_bytes` is weights, biases and scaling in flash;
`inner_loops_bytes` a bound on the generated assembly. `arena_bytes_classic` is what the arena would take if no output
were written over its own input.

## Layers
| layer | kernel on the Cortex-M7 |
|---|---|
{layers}
"""


def readme(
    model: CompiledModel, name: str, figures: Mapping[str, int | str], sources: Mapping[str, Sequence[str]]
) -> str:
    """README.md"""
    rows = [f"| {key} | {f'{value:,}' if isinstance(value, int) else value} |" for key, value in figures.items()]
    layers = [
        f"| {op_title(model, index).replace('|', '/')} | {call.kernel} |" for index, call in enumerate(model.calls)
    ]
    return _README.format(
        name=name,
        usage=_usage(model),
        raw=_raw(model),
        host_line=host_line(sources),
        rows="\n".join(rows),
        layers="\n".join(layers),
    )


def _usage(model: CompiledModel) -> str:
    """The lines that a caller writes."""
    lines = ['#include "model.h"', ""]
    if model.graph.states:
        lines.append("model_reset(); /* once, and whenever a new stream begins */")
    for role, tensors in (("input", model.inputs), ("output", model.outputs)):
        kinds = {tensor.dtype for tensor in tensors}
        c_type = f"{kinds.pop()}_t" if len(kinds) == 1 else "void"
        const, several = "const " if role == "output" else "", len(tensors) > 1
        for number in range(len(tensors)):
            own, name = (f"_{number}", f"{role}_{number}") if several else ("", role)
            prefix = f"MODEL_{role.upper()}{own}"
            if role == "input":
                hint = f"write {prefix}_BYTES: value / {prefix}_SCALE + {prefix}_ZERO_POINT"
            else:
                hint = f"({name}[i] - {prefix}_ZERO_POINT) * {prefix}_SCALE"
            if tensors[number].quantisation is None:
                hint = f"{prefix}_BYTES"
            lines.append(f"{const}{c_type} *{name} = model_{role}({number if several else ''}); /* {hint} */")
        lines += ["model_invoke();"] if role == "input" else []
    return "\n".join(lines)
