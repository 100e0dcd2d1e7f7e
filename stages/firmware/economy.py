"""A network compiled so that it takes no more RAM than it would on TensorFlow Lite Micro, if that can be.

Fast kernels widen activations into scratch memory, which small networks would notice: where the arena and the scratch
together exceed the limit, the operators with the largest scratch take a smaller buffer, and after that the portable
kernel, which needs hardly any.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import CompiledModel, compile_model
from stages.graph.graph import Graph
from stages.graph.memory.fusion import Chain
from stages.graph.memory.overlap import Runtime

_LEANEST = 2  # see compile_model


def compile_within(
    graph: Graph,
    limit_bytes: int,
    *,
    weights: Weights,
    runtime: Runtime = "overlap",
    chains: Sequence[Chain] | None = None,
) -> CompiledModel:
    """The fastest kernels with which arena, scratch and states stay below the limit; or the leanest there are.

    `classic` is asked for to compare with: it holds every tensor whole, which alone can take the limit, and would then
    be compared at the speed of portable kernels.
    """
    if runtime == "classic":
        return compile_model(graph, weights=weights, runtime=runtime, chains=chains)
    leanness: dict[int, int] = {}
    best: CompiledModel | None = None
    while True:
        model = compile_model(graph, weights=weights, runtime=runtime, chains=chains, leanness=leanness)
        if best is None or model.working_bytes < best.working_bytes:
            best = model
        room = limit_bytes - model.layout.arena_bytes - model.state_bytes
        heavy = [
            number
            for own, call in zip(model.numbers, model.calls, strict=True)
            if call.scratch_bytes > room and len(own) == 1
            for number in own
            if leanness.get(number, 0) < _LEANEST
        ]
        if model.scratch_bytes <= room or not heavy:
            return best
        leanness |= {number: leanness.get(number, 0) + 1 for number in heavy}
