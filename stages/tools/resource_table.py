"""`pipeline resources`: what the unpruned network needs, beside what the device has room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError
from torch import nn

from pipeline.errors import ConfigError
from pipeline.stage import Answer
from stages.firmware.config import FirmwareConfig
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.overlap import Runtime
from stages.graph.memory.resources import resources as resources_of
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.tools.costs.device_cost import board_resources

_ROWS = {
    "size_bytes": ("size", " B"),
    "peak_bytes": ("peak memory", " B"),
    "peak_bytes_imprecise": ("peak memory, imprecise", " B"),
    "macs": ("MACs", ""),
}


def resources(
    network: NetworkConfig, budget: BudgetConfig, firmware: FirmwareConfig | None = None, board: str | None = None
) -> Answer:
    """Of the network of an experiment: size, peak memory (exact, and the imprecise bound of earlier work) and MACs.

    With a board also what its firmware would cost there, layer by layer.
    """
    found = _beside_budget(network.title, build(network), network.input_shape, budget.runtime, budget.limits)
    if board is None or firmware is None:
        return found
    there = board_resources(network, firmware, board)
    return Answer(f"{found.text}\n\n{there.text}", {**found.record, "board": there.record})


def module_resources(module: nn.Module, input_shape: tuple[int, int, int], budget: Mapping[str, Any]) -> Answer:
    """The same of anybody's module; `budget` may be empty."""
    try:
        limits = BudgetConfig.model_validate(budget) if budget else None
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"budget.{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
        ) from error
    runtime = "classic" if limits is None else limits.runtime
    return _beside_budget(type(module).__name__, module, input_shape, runtime, {} if limits is None else limits.limits)


def _beside_budget(
    title: str, module: nn.Module, input_shape: tuple[int, int, int], runtime: Runtime, limits: Mapping[str, int]
) -> Answer:
    unpruned = asdict(resources_of(graph_from_torch(module, input_shape), runtime))
    record = {"unpruned": {key: unpruned[key] for key in _ROWS}, "budget": dict(limits)}
    rows = [(title, "unpruned", "budget", "unpruned / budget")]
    for key, (name, unit) in _ROWS.items():
        used, allowed = unpruned[key], limits.get(key)
        limit, share = ("-", "-") if allowed is None else (f"{allowed:,}{unit}", f"{used / allowed:.2f}")
        rows.append((name, f"{used:,}{unit}", limit, share))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  " + "  ".join(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    return Answer("\n".join(lines), record)
