"""Many small networks in one image for the twin, compiled with the fast kernels: what QEMU computes for given inputs.

Every network keeps its own arena; its inputs stand in the image and its outputs leave by the UART, in turn.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from boards import BOARDS_FOLDER
from stages.firmware.c_text import c_array
from stages.firmware.image import Placement, write_sources
from stages.firmware.model_source import CompiledModel
from stages.firmware.toolchain import Toolchain

FIRMWARE = BOARDS_FOLDER / "firmware"
VIRTUAL = BOARDS_FOLDER / "virtual"
_RENAMED = ("model_input", "model_output", "model_invoke")
_DEFINES = {"BOARD_NAME": '"twin"', "BOARD_CLOCK_HZ": "1u"}

_MAIN = """
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "board.h"

volatile uint32_t prof_stamp[64];
bool prof_timing;
void prof_record(uint32_t index);
void prof_record(uint32_t index)
{{
    (void)index;
}}

{declarations}
static const struct {{
    uint32_t input_bytes, output_bytes;
    const int8_t *inputs;
    int8_t *(*input)(void);
    const int8_t *(*output)(void);
    void (*invoke)(void);
}} models[] = {{ {rows} }};

int main(void)
{{
    for (uint32_t model = 0; model < sizeof models / sizeof models[0]; model++) {{
        for (uint32_t i = 0; i < {inputs_each}u; i++) {{
            memcpy(models[model].input(), &models[model].inputs[i * models[model].input_bytes],
                   models[model].input_bytes);
            models[model].invoke();
            for (uint32_t byte = 0; byte < models[model].output_bytes; byte++) {{
                board_put((uint8_t)models[model].output()[byte]);
            }}
        }}
    }}
    register uint32_t operation __asm("r0") = 0x18; /* semihosting: SYS_EXIT */
    register uint32_t reason __asm("r1") = 0x20026; /* ADP_Stopped_ApplicationExit */
    __asm volatile("bkpt 0xab" : : "r"(operation), "r"(reason));
    return 0;
}}
"""


def twin_outputs(models: Sequence[CompiledModel], inputs: Sequence[np.ndarray], folder: Path) -> list[np.ndarray]:
    """What each network makes of its inputs (as many for each), one row per input."""
    tools = Toolchain(optimise="O2", path_names={})
    objects: list[Path] = []
    declarations, rows, assembly = [], [], {}
    for index, (model, values) in enumerate(zip(models, inputs, strict=True)):
        generated = folder / f"model_{index}"
        write_sources(model, "test", Placement(region="dtcm", macro="PLACE_FAST"), generated)
        assembly |= model.assembly
        renames = {name: f"m{index}_{name}" for name in _RENAMED}
        sources = [generated / "model.c"]
        objects += tools.compile_all(sources, [FIRMWARE, generated], renames, folder / f"object_{index}")
        i, o, invoke = renames.values()
        declarations.append(f"int8_t *{i}(void);\nconst int8_t *{o}(void);\nvoid {invoke}(void);")
        declarations.append(c_array("int8_t", f"inputs_{index}", values, f"inputs of network {index}"))
        rows.append(f"{{{model.input.nbytes}, {model.output.nbytes}, inputs_{index}, {i}, {o}, {invoke}}}")
    (folder / "main.c").write_text(
        _MAIN.format(declarations="\n".join(declarations), rows=", ".join(rows), inputs_each=len(inputs[0]))
    )
    (folder / "assembly.S").write_text(".syntax unified\n.thumb\n.cpu cortex-m7\n" + "\n".join(assembly.values()))
    sources = [FIRMWARE / f"{name}.c" for name in ("start", "fault", "text")]
    sources += [*sorted((FIRMWARE / "kernels").glob("*.c")), VIRTUAL / "board.c", folder / "main.c"]
    objects += tools.compile_all([*sources, folder / "assembly.S"], [FIRMWARE], _DEFINES, folder / "objects")
    image = tools.link(objects, [VIRTUAL / "memory.ld", FIRMWARE / "sections.ld"], folder / "models.elf")
    return _split(_uart_bytes(image, folder / "uart"), models, len(inputs[0]))


def _uart_bytes(image: Path, log: Path) -> bytes:
    qemu = shutil.which("qemu-system-arm")
    assert qemu, "needs qemu-system-arm"
    argv = [qemu, "-M", "mps2-an500", "-kernel", str(image), "-semihosting", "-display", "none", "-monitor", "none"]
    subprocess.run([*argv, "-serial", f"file:{log}"], timeout=120, check=True, stdin=subprocess.DEVNULL)
    return log.read_bytes()


def _split(sent: bytes, models: Sequence[CompiledModel], inputs_each: int) -> list[np.ndarray]:
    sizes = [inputs_each * model.output.nbytes for model in models]
    assert len(sent) == sum(sizes), sent[-300:]
    starts = np.cumsum([0, *sizes])
    values = np.frombuffer(sent, np.int8)
    return [
        values[start : start + size].reshape(inputs_each, -1) for start, size in zip(starts[:-1], sizes, strict=True)
    ]
