"""`pipeline resources`: what the unpruned network needs, beside what the device has room for."""

from __future__ import annotations

from dataclasses import asdict

from pipeline.stage import Answer
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources as resources_of
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build

_ROWS = {
    "size_bytes": ("size", " B"),
    "peak_bytes": ("peak memory", " B"),
    "peak_bytes_imprecise": ("peak memory, imprecise", " B"),
    "macs": ("MACs", ""),
}


def resources(network: NetworkConfig, budget: BudgetConfig) -> Answer:
    """Size, peak memory (exact, and the imprecise bound of earlier work) and MACs, against the budget."""
    unpruned = asdict(resources_of(graph_from_torch(build(network), network.input_shape), budget.runtime))
    record = {"unpruned": {key: unpruned[key] for key in _ROWS}, "budget": budget.limits}
    rows = [(network.title, "unpruned", "budget", "unpruned / budget")]
    for key, (title, unit) in _ROWS.items():
        used, allowed = unpruned[key], budget.limits.get(key)
        limit, share = ("-", "-") if allowed is None else (f"{allowed:,}{unit}", f"{used / allowed:.2f}")
        rows.append((title, f"{used:,}{unit}", limit, share))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  " + "  ".join(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    return Answer("\n".join(lines), record)
