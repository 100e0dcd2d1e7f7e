"""Networks compiled by the firmware compiler, for the host: the same generated C and kernels under sanitizers.

All networks of a test go into one program, each with its functions renamed; the program is told which one to run and
reads inputs from stdin.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.firmware.build.image import INCLUDES, kernel_sources, write_sources
from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import CompiledModel, compile_model
from stages.firmware.placement import Placement
from stages.graph.graph import Graph
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.fast.plain_inner_loops import plain_inner_loops

FLAGS = (
    *("gcc", "-std=c11", "-O1", "-g", "-fwrapv", *(f"-I{folder}" for folder in INCLUDES)),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow", "-Wdouble-promotion"),
)
_FUNCTIONS = ("model_input", "model_output", "model_invoke")
_RENAMED = (*_FUNCTIONS, "model_reset", "TENSOR_PLACES", "MODEL_INPUT_SIZES", "MODEL_OUTPUT_SIZES")
_MOST_OPS = 1024
_ONE_ARENA = Placement(region="dtcm", macro="PLACE_FAST")

_MAIN = """
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

volatile uint32_t prof_stamp[{most_ops} + 1];
bool prof_timing;
void prof_record(uint32_t index);
void prof_record(uint32_t index)
{{
    (void)index;
}}

{declarations}
static const struct {{
    bool (*read)(void);
    void (*write)(void);
    void (*invoke)(void);
    void (*reset)(void);
}} models[] = {{ {rows} }};

int main(int argc, char **argv)
{{
    const int model = argc > 1 ? atoi(argv[1]) : 0;
    if (models[model].reset != NULL) {{
        models[model].reset();
    }}
    while (models[model].read()) {{
        models[model].invoke();
        models[model].write();
    }}
    return 0;
}}
"""


@dataclass(frozen=True)
class HostModels:
    """A program that holds several networks."""

    program: Path
    graphs: Sequence[Graph]

    def run(self, index: int, inputs: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
        """The output for each input, from one start of the program: state left by one inference meets the next.

        The bytes of all outputs, one behind the other, as int8.
        """
        given = [inputs] if isinstance(inputs, np.ndarray) else inputs
        sent = b"".join(each[sample].tobytes() for sample in range(len(given[0])) for each in given)
        done = subprocess.run([self.program, str(index)], input=sent, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return np.frombuffer(done.stdout, np.int8).reshape(len(given[0]), -1)


def build_host_models(
    graphs: Sequence[Graph],
    folder: Path,
    weights: Weights | None = None,
    placement: Placement = _ONE_ARENA,
    models: Sequence[CompiledModel] | None = None,
) -> HostModels:
    """With `weights`, the Cortex-M7's kernels, on inner loops in plain C; `models`: the graphs, compiled already."""
    models = models or [compile_model(graph, weights=weights, runtime="overlap") for graph in graphs]

    def build(index: int) -> Path:
        generated = folder / f"model_{index}"
        write_sources(models[index], f"model_{index}", placement, generated)
        renames = [f"-D{name}=m{index}_{name}" for name in _RENAMED]
        return _compiled(generated / "model.c", generated / "model.o", f"-I{generated}", *renames)

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(build, range(len(graphs))))
        kernels = [_inner_loops(models, folder)] if any(model.assembly for model in models) else []
        kernels += list(pool.map(lambda s: _compiled(s, folder / f"{s.stem}.o"), kernel_sources()))
    declarations = [_access(index, model) for index, model in enumerate(models)]
    rows = [
        f"{{read_{i}, write_{i}, m{i}_model_invoke, {f'm{i}_model_reset' if model.graph.states else 'NULL'}}}"
        for i, model in enumerate(models)
    ]
    main = folder / "main.c"
    main.write_text(_MAIN.format(declarations="\n".join(declarations), rows=", ".join(rows), most_ops=_MOST_OPS))
    program = folder / "models"
    _check([*FLAGS, str(main), *map(str, [*objects, *kernels]), "-o", str(program)])
    return HostModels(program, graphs)


def _access(index: int, model: CompiledModel) -> str:
    """How to fill the inputs of a network and send its outputs."""
    lines, name = [f"void m{index}_model_invoke(void);", f"void m{index}_model_reset(void);"], f"m{index}_model"
    calls = {}
    for role, tensors in (("input", model.inputs), ("output", model.outputs)):
        several = len(tensors) > 1
        lines.append(f"void *{name}_{role}({'uint32_t' if several else 'void'});")
        calls[role] = [(f"{name}_{role}({n if several else ''})", t.nbytes) for n, t in enumerate(tensors)]
    reads = " && ".join(f"fread({call}, 1, {size}, stdin) == {size}" for call, size in calls["input"])
    writes = " ".join(f"fwrite({call}, 1, {size}, stdout);" for call, size in calls["output"])
    lines += [f"static bool read_{index}(void) {{ return {reads}; }}"]
    return "\n".join([*lines, f"static void write_{index}(void) {{ {writes} }}"])


def _inner_loops(models: Sequence[CompiledModel], folder: Path) -> Path:
    source = folder / "inner_loops.c"
    source.write_text(plain_inner_loops(name for model in models for name in model.assembly))
    return _compiled(source, folder / "inner_loops.o")


def _compiled(source: Path, output: Path, *more: str) -> Path:
    _check([*FLAGS, *more, "-c", str(source), "-o", str(output)])
    return output


def _check(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def tflm_outputs(graph: Graph, inputs: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """What TensorFlow Lite Micro's reference kernels make of the inputs; bytes of all outputs, as int8."""
    from tflite_micro.python.tflite_micro import runtime

    given = [inputs] if isinstance(inputs, np.ndarray) else inputs
    interpreter = runtime.Interpreter.from_bytes(write_tflite(graph, "test"), arena_size=1 << 20)
    outputs = []
    for sample in range(len(given[0])):
        for number, values in enumerate(given):
            shape = graph.tensors[graph.inputs[number]].shape
            interpreter.set_input(np.ascontiguousarray(values[sample]).reshape(shape), number)
        interpreter.invoke()
        found = [np.array(interpreter.get_output(number)) for number in range(len(graph.outputs))]
        outputs.append(np.frombuffer(b"".join(each.tobytes() for each in found), np.int8))
    return np.stack(outputs)
