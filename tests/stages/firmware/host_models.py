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
_MOST_OPS = 64
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
    size_t input_bytes, output_bytes;
    int8_t *(*input)(void);
    const int8_t *(*output)(void);
    void (*invoke)(void);
}} models[] = {{ {rows} }};

int main(int argc, char **argv)
{{
    const int model = argc > 1 ? atoi(argv[1]) : 0;
    while (fread(models[model].input(), 1, models[model].input_bytes, stdin) == models[model].input_bytes) {{
        models[model].invoke();
        fwrite(models[model].output(), 1, models[model].output_bytes, stdout);
    }}
    return 0;
}}
"""


@dataclass(frozen=True)
class HostModels:
    """A program that holds several networks."""

    program: Path
    graphs: Sequence[Graph]

    def run(self, index: int, inputs: np.ndarray) -> np.ndarray:
        """The output for each input, from one start of the program: state left by one inference meets the next."""
        done = subprocess.run([self.program, str(index)], input=inputs.tobytes(), capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return np.frombuffer(done.stdout, np.int8).reshape(len(inputs), -1)


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
        renames = [f"-D{name}=m{index}_{name}" for name in (*_FUNCTIONS, "TENSOR_PLACES")]
        return _compiled(generated / "model.c", generated / "model.o", f"-I{generated}", *renames)

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(build, range(len(graphs))))
        kernels = [_inner_loops(models, folder)] if any(model.assembly for model in models) else []
        kernels += list(pool.map(lambda s: _compiled(s, folder / f"{s.stem}.o"), kernel_sources()))
    declarations, rows = [], []
    for index, graph in enumerate(graphs):
        sizes = [graph.tensors[tensor].nbytes for tensor in (graph.inputs[0], graph.outputs[0])]
        names = [f"m{index}_{name}" for name in _FUNCTIONS]
        declarations.append(f"int8_t *{names[0]}(void);\nconst int8_t *{names[1]}(void);\nvoid {names[2]}(void);")
        rows.append("{" + ", ".join(map(str, [*sizes, *names])) + "}")
    main = folder / "main.c"
    main.write_text(_MAIN.format(declarations="\n".join(declarations), rows=", ".join(rows), most_ops=_MOST_OPS))
    program = folder / "models"
    _check([*FLAGS, str(main), *map(str, [*objects, *kernels]), "-o", str(program)])
    return HostModels(program, graphs)


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


def tflm_outputs(graph: Graph, inputs: np.ndarray) -> np.ndarray:
    """What TensorFlow Lite Micro's reference kernels make of the inputs."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(write_tflite(graph, "test"), arena_size=1 << 20)
    outputs = []
    for one in inputs:
        interpreter.set_input(one[np.newaxis], 0)
        interpreter.invoke()
        outputs.append(np.array(interpreter.get_output(0)).reshape(-1))
    return np.stack(outputs)
