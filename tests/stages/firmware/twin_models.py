"""Many small networks in one image for the twin, compiled with the fast kernels: what QEMU computes for given inputs.

Every network keeps its own arena; its inputs stand in the image and its outputs leave by the UART, in turn.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stages.firmware.build.image import FIRMWARE, INCLUDES, VIRTUAL, kernel_sources, write_sources
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.kernels.c_text import c_array
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_RENAMED = ("model_input", "model_output", "model_invoke", "TENSOR_PLACES")
_DEFINES = {"BOARD_NAME": '"twin"', "BOARD_CLOCK_HZ": "1u", "BOARD_BAUD": "115200u", "BOARD_MEASURES_ENERGY": "0"}

_MAIN = """
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "board.h"

volatile uint32_t prof_stamp[{marks}];
bool prof_timing;
void prof_record(uint32_t index);

struct place {{ /* as in tensor.h */
    const int8_t *first;
    uint32_t bytes;
}};

{declarations}
static const struct {{
    uint32_t input_bytes;
    const int8_t *inputs;
    const struct place *results; /* of each operator */
    int8_t *(*input)(void);
    void (*invoke)(void);
}} models[] = {{ {rows} }};

static uint32_t model;

/* Before operator `index`: the one before it has just written its result. */
void prof_record(uint32_t index)
{{
    if (index == 0) {{
        return;
    }}
    const struct place *result = &models[model].results[index - 1];
    for (uint32_t byte = 0; byte < result->bytes; byte++) {{
        board_put((uint8_t)result->first[byte]);
    }}
}}

int main(void)
{{
    prof_timing = true;
    for (model = 0; model < sizeof models / sizeof models[0]; model++) {{
        for (uint32_t i = 0; i < {inputs_each}u; i++) {{
            memcpy(models[model].input(), &models[model].inputs[i * models[model].input_bytes],
                   models[model].input_bytes);
            models[model].invoke();
            board_alive();
        }}
    }}
    register uint32_t operation __asm("r0") = 0x18; /* semihosting: SYS_EXIT */
    register uint32_t reason __asm("r1") = 0x20026; /* ADP_Stopped_ApplicationExit */
    __asm volatile("bkpt 0xab" : : "r"(operation), "r"(reason));
    return 0;
}}
"""


def twin_outputs(
    models: Sequence[CompiledModel],
    inputs: Sequence[np.ndarray],
    folder: Path,
    placements: Sequence[Placement] | None = None,
) -> list[np.ndarray]:
    """What each network makes of its inputs (as many for each), one row per input."""
    found = twin_tensors(models, inputs, folder, placements)
    return [tensors[model.graph.outputs[0]] for model, tensors in zip(models, found, strict=True)]


def twin_tensors(
    models: Sequence[CompiledModel],
    inputs: Sequence[np.ndarray],
    folder: Path,
    placements: Sequence[Placement] | None = None,
) -> list[dict[int, np.ndarray]]:
    """The result of every op of each network, read from the arena right after it was written; one row per input."""
    placements = placements or [Placement(region="dtcm", macro="PLACE_FAST")] * len(models)
    tools = Toolchain(optimise="O2", path_names={})
    objects: list[Path] = []
    declarations, rows, assembly = [], [], {}
    for index, (model, values) in enumerate(zip(models, inputs, strict=True)):
        generated = folder / f"model_{index}"
        write_sources(model, "test", placements[index], generated)
        assembly |= model.assembly
        renames = {name: f"m{index}_{name}" for name in _RENAMED}
        sources = [generated / "model.c"]
        objects += tools.compile_all(sources, [*INCLUDES, generated], renames, folder / f"object_{index}")
        i, _, invoke, places = renames.values()
        declarations.append(f"int8_t *{i}(void);\nvoid {invoke}(void);\nextern const struct place {places}[];")
        declarations.append(c_array("int8_t", f"inputs_{index}", values, f"inputs of network {index}"))
        rows.append(f"{{{model.input.nbytes}, inputs_{index}, {places}, {i}, {invoke}}}")
    marks = 1 + max(len(model.graph.ops) for model in models)
    (folder / "main.c").write_text(
        _MAIN.format(
            declarations="\n".join(declarations), rows=", ".join(rows), inputs_each=len(inputs[0]), marks=marks
        )
    )
    (folder / "assembly.S").write_text(".syntax unified\n.thumb\n.cpu cortex-m7\n" + "\n".join(assembly.values()))
    sources = [
        *(FIRMWARE / "core" / f"{name}.c" for name in ("start", "fault", "divide", "mpu", "ticks")),
        *(FIRMWARE / "link" / f"{name}.c" for name in ("text", "baud", "crc32", "reply_check", "ring")),
    ]
    sources += [*kernel_sources(), *sorted(VIRTUAL.glob("*.c")), folder / "main.c"]
    objects += tools.compile_all([*sources, folder / "assembly.S"], INCLUDES, _DEFINES, folder / "objects")
    image = tools.link(objects, [VIRTUAL / "memory.ld", FIRMWARE / "core" / "sections.ld"], folder / "models.elf")
    return _split(_uart_bytes(image, folder / "uart"), models, len(inputs[0]))


def _uart_bytes(image: Path, log: Path) -> bytes:
    qemu = shutil.which("qemu-system-arm")
    assert qemu, "needs qemu-system-arm"
    argv = [qemu, "-M", "mps2-an500", "-kernel", str(image), "-semihosting", "-display", "none", "-monitor", "none"]
    subprocess.run([*argv, "-serial", f"file:{log}"], timeout=120, check=True, stdin=subprocess.DEVNULL)
    return log.read_bytes()


def _split(sent: bytes, models: Sequence[CompiledModel], inputs_each: int) -> list[dict[int, np.ndarray]]:
    values, found = np.frombuffer(sent, np.int8), []
    for model in models:
        sizes = [model.graph.tensors[op.outputs[0]].nbytes for op in model.graph.ops]
        count = inputs_each * sum(sizes)
        assert len(values) >= count, sent[-300:]
        columns = np.split(values[:count].reshape(inputs_each, -1), np.cumsum(sizes)[:-1], axis=1)
        found.append({op.outputs[0]: column for op, column in zip(model.graph.ops, columns, strict=True)})
        values = values[count:]
    assert not len(values), sent[-300:]
    return found
