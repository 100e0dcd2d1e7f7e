"""TensorFlow Lite Micro in a process of its own, for files that we did not make: there an abort is only an exit code.

The C++ runtime ends its process on some conditions, for instance when a softmax over many classes overflows its sum.
The parent sends one npz on stdin (the model, its inputs) and gets one back on stdout (the outputs, the arena's head).
A file of a few hundred bytes can ask for gigabytes of activations or for hours of computing: what a run would take is
estimated first, and refused above limits that networks for microcontrollers do not reach.
"""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import StageError
from stages.graph.graph import WEIGHTED, Graph, Op, PoolOptions
from stages.graph.judge.tflm import arena_limit_bytes, head_bytes, open_interpreter
from stages.graph.memory.resources import op_macs

_LIMIT_S = 600
_REFUSED = 3  # exit code
_MOST_ARENA_BYTES = 512 << 20
_MOST_SAMPLE_BYTES = 128 << 20  # inputs and outputs of all samples; 20 of 224x224x3 as float32 are 12 MB
_MOST_STEPS = 2 * 10**9  # of one inference, some 3 s; ResNet-18 for 224x224x3 takes 1.9 * 10**9
# A step is a multiply-accumulate of CONV_2D, 1.2 ns on two shared cores; the other kernels were measured beside it.
_STEPS_PER_MAC = {"DEPTHWISE_CONV_2D": 5}
_STEPS_PER_VALUE = {"LOGISTIC": 80, "SOFTMAX": 80, "TANH": 80, "LOG_SOFTMAX": 80}
_STEPS_PER_PLAIN_VALUE = 20
_ROOT = Path(__file__).resolve().parents[3]  # from where `stages` can be imported


@dataclass(frozen=True, eq=False)
class TflmRun:
    """What the runtime gave."""

    outputs: tuple[np.ndarray, ...]  # per output of the network, (samples, *shape)
    head_bytes: int  # of the arena: activations and the kernels' scratch buffers


def check_affordable(graph: Graph, samples: int) -> None:
    """Raise StageError unless so many inferences can be tried here."""
    arena_bytes = arena_limit_bytes(graph)
    if arena_bytes > _MOST_ARENA_BYTES:
        raise StageError(
            f"the tensors take {arena_bytes} B, needed at most {_MOST_ARENA_BYTES} B to try the network here"
        )
    sample_bytes = samples * sum(graph.tensors[index].nbytes for index in (*graph.inputs, *graph.outputs))
    if sample_bytes > _MOST_SAMPLE_BYTES:
        raise StageError(
            f"inputs and outputs of {samples} samples take {sample_bytes} B, "
            f"needed at most {_MOST_SAMPLE_BYTES} B to try the network here"
        )
    steps = sum(_steps(graph, op) for op in graph.ops)
    if steps > _MOST_STEPS:
        raise StageError(
            f"one inference takes about {steps:.1e} steps, needed at most {_MOST_STEPS:.0e} to try the network here"
        )


def _steps(graph: Graph, op: Op) -> int:
    """About how long the runtime takes for one op."""
    result = graph.tensors[op.outputs[0]].elements
    values = max([result, *(graph.tensors[index].elements for index in graph.activations_of(op))])
    inner = op_macs(graph, op) * _STEPS_PER_MAC.get(op.kind, 1) if op.kind in WEIGHTED else 0
    if isinstance(op.options, PoolOptions):
        sides = graph.tensors[op.inputs[0]].shape[1:3]
        inner = result * math.prod(map(min, op.options.filter, sides))  # every value visits its whole window anew
    return inner + _STEPS_PER_VALUE.get(op.kind, _STEPS_PER_PLAIN_VALUE) * values


def run_isolated(model: bytes, graph: Graph, inputs: Sequence[np.ndarray]) -> TflmRun:
    """Run the file on samples, (samples, *shape) for each input; `graph` is what the file holds."""
    check_affordable(graph, len(inputs[0]))
    request = io.BytesIO()
    arrays = {f"input{number}": values for number, values in enumerate(inputs)}
    counts = np.array([arena_limit_bytes(graph), len(inputs), len(graph.outputs)])
    np.savez(request, model=np.frombuffer(model, np.uint8), counts=counts, **arrays)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stages.graph.judge.tflm_process"],
            input=request.getvalue(),
            capture_output=True,
            timeout=_LIMIT_S,
            cwd=_ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(
            f"TensorFlow Lite Micro was still running after {_LIMIT_S} s, needed a smaller network"
        ) from error
    if done.returncode == _REFUSED:
        raise StageError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    if done.returncode != 0:
        raise StageError(f"TensorFlow Lite Micro {_ending(done.returncode)}{_last_words(done.stderr)}")
    with np.load(io.BytesIO(done.stdout)) as reply:
        outputs = tuple(reply[f"output{number}"] for number in range(len(graph.outputs)))
        return TflmRun(outputs, int(reply["head_bytes"]))


def _ending(code: int) -> str:
    return "cannot run the model" if code > 0 else f"was ended by {signal.Signals(-code).name}"


def _last_words(log: bytes) -> str:
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    return f" ({'; '.join(lines[-3:])[:300]})" if lines else ""


def _serve() -> int:
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as request:
        arena_bytes, input_count, output_count = (int(value) for value in request["counts"])
        inputs = [request[f"input{number}"] for number in range(input_count)]
        model = request["model"].tobytes()
    try:
        interpreter = open_interpreter(model, arena_bytes)
        outputs: list[list[np.ndarray]] = [[] for _ in range(output_count)]
        for sample in range(len(inputs[0])):
            for number, values in enumerate(inputs):
                interpreter.set_input(values[sample], number)
            interpreter.invoke()
            for number, found in enumerate(outputs):
                found.append(np.array(interpreter.get_output(number)))
    except StageError as error:  # a sentence that says all
        sys.stderr.write(f"{error}\n")
        return _REFUSED
    except (RuntimeError, ValueError, IndexError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    reply = io.BytesIO()
    arrays = {f"output{number}": np.stack(found) for number, found in enumerate(outputs)}
    np.savez(reply, head_bytes=np.array(head_bytes(interpreter) or -1), **arrays)
    sys.stdout.buffer.write(reply.getvalue())
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    code = _serve()
    sys.stderr.flush()
    os._exit(code)  # the runtime's own destructors have nothing to add
