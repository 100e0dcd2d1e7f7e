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

_RENAMED = ("model_input", "model_output", "model_invoke", "TENSOR_PLACES", "model_reset")
_SIZES = ("MODEL_INPUT_SIZES", "MODEL_OUTPUT_SIZES")
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
    void (*fill)(const int8_t *bytes);
    void (*invoke)(void);
    void (*reset)(void);
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
        if (models[model].reset != 0) {{
            models[model].reset();
        }}
        for (uint32_t i = 0; i < {inputs_each}u; i++) {{
            models[model].fill(&models[model].inputs[i * models[model].input_bytes]);
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
    """What each network makes of its inputs (as many for each), one row per input: the bytes of all outputs as int8."""
    found = twin_tensors(models, inputs, folder, placements)
    return [
        np.concatenate([tensors[index] for index in model.graph.outputs], axis=1)
        for model, tensors in zip(models, found, strict=True)
    ]


def twin_tensors(
    models: Sequence[CompiledModel],
    inputs: Sequence[np.ndarray | Sequence[np.ndarray]],
    folder: Path,
    placements: Sequence[Placement] | None = None,
) -> list[dict[int, np.ndarray]]:
    """The result of every op of each network, read from the arena right after it was written; one row per input.

    A network's inputs follow each other in time; several at once are given as a list of arrays.
    """
    inputs = [rows_of(values) for values in inputs]
    placements = placements or [Placement(region="dtcm", macro="PLACE_FAST")] * len(models)
    tools = Toolchain(optimise="O2", path_names={})
    objects: list[Path] = []
    declarations, rows, assembly = [], [], {}
    for index, (model, values) in enumerate(zip(models, inputs, strict=True)):
        generated = folder / f"model_{index}"
        write_sources(model, "test", placements[index], generated)
        assembly |= model.assembly
        renames = {name: f"m{index}_{name}" for name in (*_RENAMED, *_SIZES)}
        sources = [generated / "model.c"]
        objects += tools.compile_all(sources, [*INCLUDES, generated], renames, folder / f"object_{index}")
        i, _, invoke, places, reset, *_ = renames.values()
        several = len(model.inputs) > 1
        declarations.append(f"void *{i}({'uint32_t' if several else 'void'});\nvoid {invoke}(void);")
        declarations.append(f"void {reset}(void);\nextern const struct place {places}[];")
        declarations.append(c_array("int8_t", f"inputs_{index}", values, f"inputs of network {index}"))
        offsets = np.cumsum([0, *(tensor.nbytes for tensor in model.inputs)])
        copies = [
            f"memcpy({i}({n if several else ''}), &bytes[{offsets[n]}], {tensor.nbytes});"
            for n, tensor in enumerate(model.inputs)
        ]
        declarations.append(f"static void fill_{index}(const int8_t *bytes) {{ {' '.join(copies)} }}")
        reset = reset if model.graph.states else "0"
        rows.append(f"{{{model.input_bytes}, inputs_{index}, {places}, fill_{index}, {invoke}, {reset}}}")
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


def rows_of(values: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """All inputs of one inference, one behind the other, as int8; one row for each inference."""
    given = [values] if isinstance(values, np.ndarray) else values
    rows = [np.ascontiguousarray(each).reshape(len(each), -1).view(np.int8) for each in given]
    return np.concatenate(rows, axis=1)


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
