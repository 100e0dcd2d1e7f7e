"""Which ops of a network are fused to chains (stages/graph/memory/fusion.py): those that make its arena smaller.

The resource model names the chains without which the peak cannot be as low as it can be. They are taken only if the
arena as it is really laid out shrinks by a 64th or more: a chain costs some cycles. Then each chain's bands grow as far
as the arena allows, since every band computes with lines that it has to prepare anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.firmware.fast.calls import fast_call
from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.access_order import distances, laid_out
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.fused import can_be_fused, fused_call
from stages.firmware.kernels.movement import move_call
from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import ArenaLayout, arena_layout, arena_places, live_bytes
from stages.graph.memory.fusion import Chain, fused_graph
from stages.graph.memory.overlap import OverlapProblem

_WORTH = 64  # a part of the arena: less is not worth a cycle


@dataclass(frozen=True)
class Plan:
    """A network as it runs: some of its ops are fused chains of several."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    layout: ArenaLayout


def plan_of(graph: Graph, calls: Sequence[KernelCall], weights: Weights | None, chains: Sequence[Chain]) -> Plan:
    """With these chains, which stand together in the graph's order."""
    planned, found = _planned(graph, calls, weights, chains)
    layout = laid_out(
        planned, found, lambda known: arena_layout(planned, distances=known), lambda each: dict(enumerate(each.offsets))
    )
    return Plan(planned, found, layout)


def best_plan(graph: Graph, calls: Sequence[KernelCall], weights: Weights | None) -> Plan:
    """The one with the smallest arena."""
    may = {number for number, call in enumerate(calls) if can_be_fused(graph, number, call)}
    chains = OverlapProblem(graph, may).chains(range(len(graph.ops)))
    if not chains:
        return plan_of(graph, calls, weights, ())
    fused = plan_of(graph, calls, weights, chains)
    unfused = arena_places(graph, distances=distances(graph, calls))
    if not _is_worth(fused, max(live_bytes(unfused, len(graph.ops)))):  # a bound, which takes no packing to know
        plain = plan_of(graph, calls, weights, ())
        if not _is_worth(fused, plain.layout.arena_bytes):
            return plain
    high = [_highest(graph, calls, weights, chain, fused.layout) for chain in chains]
    higher = fused if high == list(chains) else plan_of(graph, calls, weights, high)
    return higher if higher.layout.arena_bytes <= fused.layout.arena_bytes else fused


def _is_worth(fused: Plan, plain_bytes: int) -> bool:
    """Whether the arena is smaller by enough than one of so many bytes, or of more."""
    return plain_bytes - fused.layout.arena_bytes >= plain_bytes / _WORTH


def _planned(
    graph: Graph, calls: Sequence[KernelCall], weights: Weights | None, chains: Sequence[Chain]
) -> tuple[Graph, tuple[KernelCall, ...]]:
    """The graph with one op for each chain, and the call of each op."""
    firsts = {chain.ops[0]: chain for chain in chains}
    inside = {number for chain in chains for number in chain.ops}
    found = []
    for number, call in enumerate(calls):
        if number in firsts:
            found.append(fused_call(graph, firsts[number], _parts(graph, calls, weights, firsts[number])))
        elif number not in inside:
            found.append(call)
    return fused_graph(graph, chains), tuple(found)


def _parts(graph: Graph, calls: Sequence[KernelCall], weights: Weights | None, chain: Chain) -> list[KernelCall]:
    """The calls of a chain's ops, with the inner loops for as many rows as it asks for."""
    found = []
    for position, number in enumerate(chain.ops):
        op, rows = graph.ops[number], chain.counts(position)
        call = fast_call(graph, op, f"op_{number}", weights, rows) if weights else None
        if calls[number].kernel == "move":
            call = move_call(graph, op, f"op_{number}", lines=1)
        found.append(call or calls[number])
    return found


def _highest(
    graph: Graph, calls: Sequence[KernelCall], weights: Weights | None, chain: Chain, layout: ArenaLayout
) -> Chain:
    """The chain with bands as high as they can be without need for a larger arena."""
    found = chain
    while found.band < chain.passes[-1].rows:
        trial = replace(found, band=2 * found.band)
        planned, trial_calls = _planned(graph, calls, weights, [trial])
        places = arena_places(planned, distances=distances(planned, trial_calls))
        if live_bytes(places, len(planned.ops))[chain.ops[0]] > layout.arena_bytes:
            break
        found = trial
    return found
