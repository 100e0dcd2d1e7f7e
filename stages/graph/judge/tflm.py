"""TensorFlow Lite Micro on the host (PyPI `tflite-micro`, reference kernels): the oracle of everything int8.

The runtime is C++ and prints what it does to stderr; its refusals arrive as RuntimeError and leave as StageError.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipeline.errors import StageError
from stages.graph.ends import arrays_of
from stages.graph.graph import Graph

_BOOKKEEPING_BYTES = 1 << 20  # the runtime's own structures lie in the arena too
_BYTES_PER_TENSOR = 256
_HEAD = re.compile(r"Arena allocation head (\d+) bytes")


def run_tflm(model: bytes, graph: Graph, inputs: np.ndarray) -> np.ndarray:
    """The output of every input (N, H, W, C); `graph` is what `model` holds."""
    interpreter = open_interpreter(model, arena_limit_bytes(graph))
    return np.concatenate([_invoke(interpreter, x) for x in inputs])


def accepts(model: bytes, graph: Graph) -> bool:
    """Whether the runtime takes the file as it is."""
    try:
        open_interpreter(model, arena_limit_bytes(graph))
    except StageError:
        return False
    return True


def run_tflm_rows(model: bytes, graph: Graph, inputs: np.ndarray, runs: int = 1) -> np.ndarray:
    """Rows of bytes from rows of bytes (see ends.py) of a network with any number of inputs and outputs.

    Each input meets a network in its first state, and is given to it so many times.
    """
    limit, found, interpreter = arena_limit_bytes(graph), [], None
    for row in inputs:
        if interpreter is None or graph.states:
            interpreter = open_interpreter(model, limit)
        try:
            for _ in range(runs):
                for number, values in enumerate(arrays_of(graph, graph.inputs, row)):
                    interpreter.set_input(values, number)
                interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise _could_not_run(error) from error
        outputs = [np.array(interpreter.get_output(number)) for number in range(len(graph.outputs))]
        found.append(np.frombuffer(b"".join(output.tobytes() for output in outputs), np.int8))
    return np.stack(found)


def run_tflm_keeping_all(
    model: bytes, graph: Graph, inputs: np.ndarray | Sequence[np.ndarray]
) -> dict[int, np.ndarray]:
    """Every computed tensor, samples along the first axis. `model` must carry no offline plan: by that, tensors
    overwrite each other. Of several inputs a list of arrays."""
    given = [inputs] if isinstance(inputs, np.ndarray) else inputs
    interpreter = open_interpreter(model, arena_limit_bytes(graph), keeps_all=True)
    wanted = [index for op in graph.ops for index in op.outputs if op.kind != "ASSIGN_VARIABLE"]
    found: dict[int, list[np.ndarray]] = {index: [] for index in wanted}
    for sample in range(len(given[0])):
        for number, values in enumerate(given[1:], 1):
            interpreter.set_input(values[sample].reshape(graph.tensors[graph.inputs[number]].shape), number)
        _invoke(interpreter, given[0][sample])
        for index in wanted:
            found[index].append(np.array(interpreter.GetTensor(index, 0)["tensor_data"]))
    return {
        index: (np.concatenate if graph.tensors[index].shape[:1] == (1,) else np.stack)(parts)
        for index, parts in found.items()
    }


def arena_head_bytes(model: bytes, graph: Graph) -> int | None:
    """What the runtime itself says the activations take; None should it not say so."""
    interpreter = open_interpreter(model, arena_limit_bytes(graph))
    source = graph.tensors[graph.inputs[0]]
    _invoke(interpreter, np.zeros(source.shape[1:], source.dtype))
    return head_bytes(interpreter)


def head_bytes(interpreter: Any) -> int | None:
    """The same, from an interpreter that has run."""
    match = _HEAD.search(printed(interpreter.print_allocations))
    return int(match[1]) if match else None


def arena_limit_bytes(graph: Graph) -> int:
    """An arena in which the network fits in any case."""
    return sum(tensor.nbytes + _BYTES_PER_TENSOR for tensor in graph.tensors) + _BOOKKEEPING_BYTES


def open_interpreter(model: bytes, arena_bytes: int, *, keeps_all: bool = False) -> Any:
    """The runtime with a network in it; with `keeps_all` no tensor overwrites another."""
    from tflite_micro.python.tflite_micro import runtime

    settings = runtime.InterpreterConfig
    kind = settings.kPreserveAllTensors if keeps_all else settings.kAllocationRecording

    def load() -> Any:
        return runtime.Interpreter.from_bytes(model, arena_size=arena_bytes, intrepreter_config=kind)

    try:
        return load()
    except RuntimeError as error:
        lines = [line.strip() for line in printed(lambda: _tried(load)).splitlines() if line.strip()]  # its words
        raise StageError(f"TensorFlow Lite Micro refused the model ({'; '.join([*lines[:2], str(error)])})") from error


def _tried(act: Callable[[], Any]) -> None:
    with contextlib.suppress(RuntimeError):
        act()


def _invoke(interpreter: Any, x: np.ndarray) -> np.ndarray:
    try:
        interpreter.set_input(x[np.newaxis], 0)
        interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        raise _could_not_run(error) from error
    return np.array(interpreter.get_output(0))


def _could_not_run(error: Exception) -> StageError:
    return StageError(f"TensorFlow Lite Micro could not run the model ({error}); see its lines in the log")


def printed(act: Callable[[], None]) -> str:
    """What C code writes to stderr meanwhile."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as caught:
            os.dup2(caught.fileno(), 2)
            try:
                act()
            finally:
                os.dup2(kept, 2)
            caught.seek(0)
            return caught.read().decode(errors="replace")
    finally:
        os.close(kept)


def first_difference(graph: Graph, ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray]) -> str | None:
    """The first op, in order, whose results differ, with how much; None when all bits are equal."""
    for number, op in enumerate(graph.ops):
        for index in op.outputs:
            apart = np.abs(ours[index].astype(float) - theirs[index].reshape(ours[index].shape).astype(float))
            if apart.any():
                wrong = f"{np.count_nonzero(apart)} of {apart.size} values differ, by up to {apart.max():g}"
                return f"op {number} ({op.title}): {wrong}"
    return None
