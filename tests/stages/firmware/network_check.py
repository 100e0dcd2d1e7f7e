"""Compiled networks on the twin against TensorFlow Lite Micro: the result of every operator, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import compile_model
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm_keeping_all
from stages.graph.memory.fusion import Chain
from stages.graph.simplify.lowering import lowered
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.twin_models import twin_tensors


@dataclass
class Agreement:
    """What was compared; `wrong` names each operator whose bits differ."""

    networks: int = 0
    results: int = 0  # of operators
    values: int = 0
    inside: int = 0  # values that are not at an end of the range, where any scaling would look right
    kinds: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    stateful: int = 0  # networks
    several: int = 0  # networks with several inputs or outputs
    chains: int = 0  # of operators that were fused: of these the last result is compared
    wrong: list[str] = field(default_factory=list)


def inputs_of(graph: Graph, count: int) -> list[np.ndarray]:
    """Random ones for every input of a network, and the two extremes."""
    rng, found = np.random.default_rng(5), []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        limits = np.iinfo(tensor.dtype)
        drawn = rng.integers(limits.min, limits.max + 1, (count, *tensor.shape[1:])).astype(tensor.dtype)
        ends = [np.full((1, *tensor.shape[1:]), value, tensor.dtype) for value in (limits.min, limits.max)]
        found.append(np.concatenate([drawn, *ends]))
    return found


def compare_on_twin(
    graphs: Sequence[tuple[str, Graph, Weights | None]],
    folder: Path,
    found: Agreement,
    inputs_each: int = 2,
    chains: Sequence[Sequence[Chain]] | None = None,
) -> None:
    """Run all networks (name, graph, kernels) in one start of the twin and note how their results compare.

    With `chains`, of each network, outputs lie over inputs, too; without them, every operator's result is its own.
    """
    models = (
        [compile_model(lowered(graph), weights=weights) for _, graph, weights in graphs]
        if chains is None
        else [
            compile_model(lowered(graph), weights=weights, runtime="overlap", chains=own)
            for (_, graph, weights), own in zip(graphs, chains, strict=True)
        ]
    )
    inputs = [inputs_of(graph, inputs_each) for _, graph, _ in graphs]
    results = twin_tensors(models, inputs, folder)
    for (name, graph, weights), model, given, ours in zip(graphs, models, inputs, results, strict=True):
        theirs = run_tflm_keeping_all(write_tflite(graph, "test"), graph, given)
        found.networks += 1
        found.stateful += bool(graph.states)
        found.several += len(graph.inputs) > 1 or len(graph.outputs) > 1
        for op, call in zip(model.graph.ops, model.calls, strict=True):
            if op.outputs[0] not in theirs:  # made by `lowering`, or a state's
                continue
            expected = np.ascontiguousarray(theirs[op.outputs[0]]).reshape(len(given[0]), -1).view(np.int8)
            apart = ours[op.outputs[0]] != expected
            found.results += 1
            found.values += expected.size
            found.inside += int(np.count_nonzero((expected > -128) & (expected < 127)))
            found.kinds.update(op.kind.split("+"))
            found.kernels.update(part.kernel for part in call.parts or (call,))
            found.chains += bool(call.parts)
            if apart.any():
                share = f"{np.count_nonzero(apart)} of {apart.size} values"
                shapes = [graph.tensors[i].shape for i in (*op.inputs, *op.outputs)]
                found.wrong.append(f"{name} ({weights}): {op.kind} on {call.kernel}, {share}, {shapes}, {op.options}")
                break  # what follows differs for this reason alone
