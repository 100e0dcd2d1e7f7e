"""The report's CSV files: columns are a contract, every row says where its numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.text import csv_text
from stages.report.device_budgets import device_bounds
from stages.report.figures import BoardFigures, NetworkFigures, Spread, read_rows

Row = dict[str, object]
_ENERGY_HOW = ("instrument", "inferences_per_window", "sample_interval_us")
_ENERGY_PARTS = (
    *("idle_mw", "idle_mw_2sigma", "above_idle_mj", "uncertainty_mj", "uncertainty_spread_mj"),
    *("uncertainty_noise_mj", "uncertainty_sampling_mj", "uncertainty_time_base_mj", "uncertainty_range_mj"),
)


def summary_rows(network: NetworkFigures, boards: Sequence[BoardFigures]) -> Iterator[Row]:
    """One row per board."""
    for figures in boards:
        yield {
            "experiment": network.experiment,
            "board": figures.board,
            "source": figures.source,
            "data_source": network.data_source,
            "n": figures.n,
            "accuracy_int8": network.accuracy_int8,
            "size_bytes": network.size.used,
            "peak_bytes": network.peak.used,
            "arena_bytes": figures.arena_bytes,
            "macs": network.macs.used,
            "flash_bytes": figures.flash_bytes,
            "ram_bytes": figures.ram_bytes,
            "clock_hz": figures.clock_hz,
            "instructions": _whole(figures.instructions),
            "cycles_modelled": figures.cycles_modelled,
            "cycles_zero_wait": figures.cycles_zero_wait,
            "latency_ms_modelled": figures.latency_ms_modelled,
            **_spread("latency_ms", figures.latency_ms),
            "energy_mj_modelled": figures.energy_mj_modelled,
            **_spread("energy_mj", figures.energy_mj),
            "fits": network.within_budget and figures.fits_memory and _holds(network, figures),
            "accuracy_float": network.accuracy_float,
            "accuracy_n": network.accuracy_n,
            **{f"budget_{column}": network.limits.get(column) for column in ("peak_bytes", "size_bytes", "macs")},
            "stack_high_water_bytes": figures.stack_high_water_bytes,
            "stack_bytes": figures.stack_bytes,
            "energy_mj_modelled_uncertainty": figures.energy_mj_modelled_uncertainty,
            "model_sha256": network.model_sha256,
            **_doubt(figures),
            "measurement_point": figures.energy.get("measurement_point") if figures.energy_mj else None,
            "measurement_point_modelled": figures.measurement_point_modelled,
        }


def _holds(network: NetworkFigures, figures: BoardFigures) -> bool:
    """Every budget of the firmware on this board."""
    return all(bound.holds for bound in device_bounds(network, [figures]))


def latency_rows(network: NetworkFigures, boards: Sequence[BoardFigures]) -> Iterator[Row]:
    """What an inference takes, one row per board."""
    for figures in boards:
        yield {
            **_identity(network, figures),
            "instructions": _whole(figures.instructions),
            "instructions_2sigma": figures.instructions.two_sigma if figures.instructions else None,
            "cycles_modelled": figures.cycles_modelled,
            "cycles_zero_wait": figures.cycles_zero_wait,
            "latency_ms_modelled": figures.latency_ms_modelled,
            **_spread("latency_ms", figures.latency_ms),
            **_doubt(figures),
        }


def energy_rows(network: NetworkFigures, boards: Sequence[BoardFigures]) -> Iterator[Row]:
    """What an inference costs, one row per board: modelled, measured by an instrument, simulated beside a twin.

    A simulated instrument has neither a name nor an uncertainty here: the model's is the one that counts.
    """
    for figures in boards:
        measured = figures.energy if figures.energy["source"] == "measured" else {}
        yield {
            **_identity(network, figures),
            "power_w_modelled": figures.power_w_modelled,
            "latency_ms_modelled": figures.latency_ms_modelled,
            "energy_mj_modelled": figures.energy_mj_modelled,
            "energy_mj_modelled_uncertainty": figures.energy_mj_modelled_uncertainty,
            **_spread("energy_mj", figures.energy_mj),
            "energy_mj_simulated": figures.energy_mj_simulated.mean if figures.energy_mj_simulated else None,
            **{key: measured.get(key) for key in (*_ENERGY_HOW, *_ENERGY_PARTS)},
            "measurement_point": measured.get("measurement_point"),
            "measurement_point_modelled": figures.measurement_point_modelled,
        }


def layer_rows(
    network: NetworkFigures, boards: Sequence[BoardFigures], device_layers: Mapping[str, Path]
) -> Iterator[Row]:
    """The ops of every board, below each other."""
    for figures in boards:
        for row in read_rows(device_layers[figures.board]):
            yield {**_identity(network, figures), **row}


def write_csv(path: Path, rows: Iterable[Row]) -> Path:
    """Write rows that share their columns."""
    table = list(rows)
    path.write_text(csv_text(table, list(table[0]) if table else []))
    return path


def _identity(network: NetworkFigures, figures: BoardFigures) -> Row:
    return {
        "experiment": network.experiment,
        "board": figures.board,
        "source": figures.source,
        "clock_hz": figures.clock_hz,
        "runtime": figures.runtime,
        "n": figures.n,
    }


def _doubt(figures: BoardFigures) -> Row:
    low, high = figures.latency_ms_modelled_span or (None, None)
    span: Row = {"latency_ms_modelled_low": low, "latency_ms_modelled_high": high}
    return {**span, "model_error": figures.model_error, "model_error_areas": "; ".join(figures.model_areas)}


def _spread(name: str, value: Spread | None) -> Row:
    return {name: value.mean if value else None, f"{name}_2sigma": value.two_sigma if value else None}


def _whole(value: Spread | None) -> int | None:
    return None if value is None else round(value.mean)
