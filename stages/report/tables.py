"""The report's CSV files: columns are a contract, every row says where its numbers come from."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

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
            "fits": network.within_budget and figures.fits_memory,
        }


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
            "model_error": figures.model_error,
        }


def energy_rows(network: NetworkFigures, boards: Sequence[BoardFigures]) -> Iterator[Row]:
    """What an inference costs, one row per board: modelled, measured by an instrument, simulated beside a twin."""
    for figures in boards:
        yield {
            **_identity(network, figures),
            "power_w_modelled": figures.power_w_modelled,
            "latency_ms_modelled": figures.latency_ms_modelled,
            "energy_mj_modelled": figures.energy_mj_modelled,
            **_spread("energy_mj", figures.energy_mj),
            **_spread("energy_mj_simulated", figures.energy_mj_simulated),
            **{key: figures.energy.get(key) for key in _ENERGY_HOW},
            **{
                f"{key}{suffix}": figures.energy.get(key) if figures.energy["source"] == source else None
                for source, suffix in (("measured", ""), ("simulated", "_simulated"))
                for key in _ENERGY_PARTS
            },
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
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(table[0]) if table else [], lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow({key: _cell(value) for key, value in row.items()})
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


def _spread(name: str, value: Spread | None) -> Row:
    return {name: value.mean if value else None, f"{name}_2sigma": value.two_sigma if value else None}


def _whole(value: Spread | None) -> int | None:
    return None if value is None else round(value.mean)


def _cell(value: object) -> object:
    """Booleans as pandas and spreadsheets read them; floats without the noise of binary fractions."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.9g}" if isinstance(value, float) else value
