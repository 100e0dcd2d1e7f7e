"""The figures of a report, gathered from the artifacts of the steps before it. None is a value that does not exist.

Means come with 2 standard deviations of the single measurement (n - 1 in the denominator), as in the paper.
Energy is modelled as the board's power during inference times the modelled latency: 1 W * 1 ms = 1 mJ.
"""

from __future__ import annotations

import csv
import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import StageError
from pipeline.stage import read_json
from stages.nets.config import BudgetConfig
from stages.report.device_lines import device_lines

MODEL_UNCERTAINTY = 0.25  # of modelled energy where device.json does not say it


@dataclass(frozen=True)
class Spread:
    """Mean and 2 standard deviations of n measurements; the latter needs two of them."""

    mean: float
    two_sigma: float | None


@dataclass(frozen=True)
class Bound:
    """A resource, and what the budget allows; None: there is no budget for it."""

    used: int
    allowed: int | None

    @property
    def holds(self) -> bool:
        return self.allowed is None or self.used <= self.allowed


@dataclass(frozen=True)
class NetworkFigures:
    """What is the same on every board."""

    experiment: str
    data_source: str  # empty: a network that was brought along
    accuracy_int8: float | None
    accuracy_n: int | None
    size: Bound
    peak: Bound
    macs: Bound
    unpruned_macs: int | None
    macs_trained_relative: float | None  # computation of the training, over training the unpruned network for as long
    accuracy_float: float | None = None
    model_sha256: str | None = None
    device: Mapping[str, Any] = field(default_factory=dict)  # budgets of the firmware by board, and their predictions

    @property
    def bounds(self) -> list[tuple[str, Bound, str]]:
        """Every resource by name, with its unit."""
        return [("peak memory", self.peak, " B"), ("size", self.size, " B"), ("MACs", self.macs, "")]

    @property
    def limits(self) -> dict[str, int]:
        """What is budgeted, by column."""
        allowed = {"peak_bytes": self.peak.allowed, "size_bytes": self.size.allowed, "macs": self.macs.allowed}
        return {column: limit for column, limit in allowed.items() if limit is not None}

    @property
    def within_budget(self) -> bool:
        return all(bound.holds for _, bound, _ in self.bounds)


@dataclass(frozen=True)
class BoardFigures:
    """What was measured and modelled on one board."""

    board: str
    source: str
    clock_hz: int
    runtime: str
    n: int
    arena_bytes: int  # as the firmware lays it out
    flash_bytes: int
    ram_bytes: int
    fits_memory: bool
    instructions: Spread | None
    cycles_modelled: int | None
    cycles_zero_wait: int | None
    latency_ms_modelled: float | None
    latency_ms: Spread | None
    power_w_modelled: float
    energy_mj_modelled: float | None
    lines: tuple[str, ...]  # what else it showed
    energy_mj: Spread | None  # by an instrument
    energy_mj_simulated: Spread | None  # by the simulated instrument of a twin
    energy: Mapping[str, Any]  # how it was found, with its uncertainty: as in device.json
    model_error: str = ""  # what is known of how far modelled time is off, and from what
    model_ratio: str = ""  # the same in a few words
    model_areas: tuple[str, ...] = ()  # the same, area by area
    latency_ms_modelled_span: tuple[float, float] | None = None  # what a board is likely to take by that
    energy_share_modelled: float = MODEL_UNCERTAINTY  # by which the modelled energy may be off
    stack_high_water_bytes: int | None = None  # seen on the device
    stack_bytes: int | None = None  # reserved
    measurement_point_modelled: str | None = None  # what the modelled power is that of: board, mcu or core

    @property
    def energy_mj_modelled_uncertainty(self) -> float | None:
        """That of the model: the noise of a simulated instrument says nothing about a board."""
        return None if self.energy_mj_modelled is None else self.energy_share_modelled * self.energy_mj_modelled


def network_figures(
    experiment: str,
    dataset: Path | None,
    accuracy: Path | None,
    plan: Path,
    prune_metrics: Path | None,
    budget: BudgetConfig,
    model: Path | None = None,
) -> NetworkFigures:
    """Accuracy and resource use against the budget."""
    planned = read_json(plan)
    tested, pruned = ({} if path is None else read_json(path) for path in (accuracy, prune_metrics))
    peak = "peak_bytes" if budget.runtime == "classic" else "peak_bytes_overlap"
    return NetworkFigures(
        experiment=experiment,
        data_source="" if dataset is None else _value(read_json(dataset), "source", dataset),
        accuracy_int8=None if accuracy is None else _value(tested, "accuracy_int8", accuracy),
        accuracy_n=tested.get("n"),
        size=Bound(_value(planned, "size_bytes", plan), budget.size_bytes),
        peak=Bound(_value(planned, peak, plan), budget.peak_bytes),
        macs=Bound(_value(planned, "macs", plan), budget.macs),
        unpruned_macs=pruned.get("before", {}).get("macs"),
        macs_trained_relative=pruned.get("macs_trained_relative"),
        accuracy_float=tested.get("accuracy_float"),
        model_sha256=None if model is None else hashlib.sha256(model.read_bytes()).hexdigest(),
        device=pruned.get("device", {}),
    )


def board_figures(name: str, footprint: Path, samples: Path, device: Path, device_accuracy: Path) -> BoardFigures:
    """Everything about one board."""
    used, told, tested, rows = read_json(footprint), read_json(device), read_json(device_accuracy), read_rows(samples)
    if not rows:
        raise StageError(f"{samples.name} of {name}: no samples, needed at least one; run the measure step again")
    power_w, latency_ms_modelled = told["power_w_modelled"], told["latency_ms_modelled"]
    doubt = told.get("model_error") or {}
    return BoardFigures(
        board=name,
        source=told["source"],
        clock_hz=told["clock_hz"],
        runtime=rows[0]["runtime"],
        n=len(rows),
        arena_bytes=_value(used, "arena_bytes", footprint),
        flash_bytes=_value(used, "flash_bytes", footprint),
        ram_bytes=_value(used, "ram_bytes", footprint),
        fits_memory=fits_memory(used),
        instructions=spread_of(rows, "instructions"),
        cycles_modelled=told["cycles_modelled"],
        cycles_zero_wait=told["cycles_zero_wait"],
        latency_ms_modelled=latency_ms_modelled,
        model_error=doubt.get("text", ""),
        model_ratio=doubt.get("ratio_text", ""),
        model_areas=tuple(_area_words(area) for area in doubt.get("areas", ())),
        latency_ms_modelled_span=_span(latency_ms_modelled, doubt),
        latency_ms=spread_of(rows, "latency_ms"),
        power_w_modelled=power_w,
        measurement_point_modelled=told.get("measurement_point_modelled"),
        energy_mj_modelled=None if latency_ms_modelled is None else power_w * latency_ms_modelled,
        lines=tuple(device_lines(told, tested)),
        energy_mj=spread_of(rows, "energy_mj"),
        energy_mj_simulated=spread_of(rows, "energy_mj_simulated"),
        energy=_value(told, "energy", device),
        energy_share_modelled=told.get("energy_uncertainty_share", MODEL_UNCERTAINTY),
        stack_high_water_bytes=told.get("stack_high_water_bytes"),
        stack_bytes=told.get("stack_bytes"),
    )


def _span(modelled_ms: float | None, doubt: Mapping[str, Any]) -> tuple[float, float] | None:
    if modelled_ms is None or doubt.get("low") is None:
        return None
    return modelled_ms / doubt["high"], modelled_ms / doubt["low"]


def _area_words(area: Mapping[str, Any]) -> str:
    share = f"{area['area']} ({100 * area['share']:.0f} % of the time)"
    if area["low"] is None:
        return f"{share} unknown: {area['against']}"
    return f"{share} {area['low']:.2f} to {area['high']:.2f}"


def read_rows(path: Path) -> list[dict[str, str]]:
    """A CSV file as mappings by column."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def spread_of(rows: Sequence[Mapping[str, str]], column: str) -> Spread | None:
    """Mean and 2 sigma of a column; None where the device could not measure it."""
    return spread([float(row[column]) for row in rows if row[column] != ""])


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(statistics.fmean(values), 2 * statistics.stdev(values) if len(values) > 1 else None)


def fits_memory(footprint: Mapping[str, Any]) -> bool:
    """No region of the board's memory is used beyond its size."""
    return all(region["used_bytes"] <= region["size_bytes"] for region in _regions(footprint))


def _regions(footprint: Mapping[str, Any]) -> Iterable[Mapping[str, int]]:
    regions = footprint.get("regions", {})
    return regions.values() if isinstance(regions, Mapping) else regions


def _value(record: Mapping[str, Any], key: str, path: Path) -> Any:
    if key not in record:
        raise StageError(f"{path.name}: no key {key!r}, needed for the report; run the step that writes it again")
    return record[key]
