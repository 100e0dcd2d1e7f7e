"""Everything that the report step reads, hand-made: of any size, with any names, fitting or not."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.nets.config import BudgetConfig
from stages.report.figures import board_figures, network_figures
from stages.report.stage import Report, run
from stages.report.tables import summary_rows
from stages.report.terminal import table_text

BUDGET = BudgetConfig(peak_bytes="51.7KB", size_bytes="63.6KB", macs="8.351M")
BOARD, TWIN = "nucleo_h743zi2", "nucleo_f767zi"
LIBRARY = "window.vegaEmbed = () => Promise.reject(new Error('not this one'))"


@dataclass(frozen=True, kw_only=True)
class Network:
    """What the made-up network is like."""

    experiment: str = "kws_dscnn_s"
    classes: tuple[str, ...] = ("down", "go", "up")
    layers: tuple[str, ...] = ("stem", "pool", "classifier")
    peak_bytes: int = 50_000
    samples: int = 600  # of power, in each of the windows
    windows: int = 3
    spike_w: float = 0.0  # one sample of the last window
    is_brought: bool = False  # somebody's file: nothing was trained, there are no test examples
    data_source: str = "builtin"


PLAIN = Network()


def put(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def put_rows(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def energy(source: str, energy_mj: float) -> dict[str, object]:
    """As the measure step tells it."""
    parts = ("uncertainty_mj", "uncertainty_spread_mj", "uncertainty_noise_mj", "uncertainty_sampling_mj")
    uncertainty = dict.fromkeys((*parts, "uncertainty_time_base_mj", "uncertainty_range_mj"), 0.25)
    how = {
        "source": source,
        "instrument": "N6705C MY1",
        "n": 3,
        "inferences_per_window": 4,
        "sample_interval_us": 20.48,
    }
    idle = {"idle_mw": 450.0, "idle_mw_2sigma": 1.5, "above_idle_mj": energy_mj / 2}
    return {**how, **idle, **uncertainty, "energy_mj": energy_mj}


def device(board: str) -> dict[str, object]:
    """The twin of one board, and another one as hardware."""
    if board == BOARD:
        return {
            **{"board": BOARD, "source": "hardware", "clock_hz": 480_000_000, "front_end": None, "stream": None},
            **{"cycles_modelled": None, "cycles_zero_wait": None, "latency_ms_modelled": None},
            **{"power_w_modelled": 1.2, "energy": energy("measured", 12.5)},
        }
    front_end = {"instructions": 2_700_000, "cycles": None, "latency_ms_modelled": 9.5}
    front_end |= {"kind": "mfcc", "features": 980, "features_equal": 931, "features_within_one": 980}
    score = {"words": 16, "hits": 13, "misses": 3, "false_alarms": 1}
    return {
        **{"board": TWIN, "source": "virtual", "clock_hz": 216_000_000, "front_end": front_end},
        "stream": {"seconds": 60.0, "score": score, "busy_share_modelled": 0.25},
        **{"cycles_modelled": 4_320_000, "cycles_zero_wait": 4_000_000, "latency_ms_modelled": 20.0},
        **{"power_w_modelled": 0.9, "energy": energy("simulated", 18.5)},
        "model_error": {
            **{"area": "network", "n": 2, "low": 0.8, "high": 1.25},
            **{"ratio_text": "model / board 0.80 to 1.25", "text": "model / board 0.80 to 1.25 (two networks)"},
            "areas": [
                {"area": "dense", "share": 0.75, "n": 2, "low": 0.9, "high": 1.25, "against": "two networks"},
                {"area": "other", "share": 0.25, "n": 0, "low": None, "high": None, "against": "never compared"},
            ],
        },
    }


def samples(board: str) -> list[dict[str, object]]:
    common: dict[str, object] = {"runtime": "aot", "energy_mj": "", "energy_mj_simulated": ""}
    if board == TWIN:
        return [
            {**common, "instructions": 5_000_000, "latency_ms": "", "energy_mj_simulated": each}
            for each in (18.0, 19.0)
        ]
    return [{**common, "instructions": "", "latency_ms": each, "energy_mj": each + 1.5} for each in (10.0, 11.0, 12.0)]


def layer_rows(board: str, names: Sequence[str]) -> list[dict[str, object]]:
    """The first op takes half of everything."""
    weights = [len(names), *[1] * (len(names) - 1)]
    total = sum(weights)
    return [
        {
            **{"index": index, "op": "CONV_2D", "name": name, "kernel": "fast_matrix", "macs": 1000 * weight},
            "instructions": 5_000_000 * weight // total if board == TWIN else "",
            "cycles_modelled": 4_320_000 * weight // total if board == TWIN else "",
            "cycles_zero_wait": 4_000_000 * weight // total if board == TWIN else "",
            "cycles": 4_800_000 * weight // total if board == BOARD else "",
            "arena_live_bytes": 100 * weight,
        }
        for index, (name, weight) in enumerate(zip(names, weights, strict=True))
    ]


def memory(names: Sequence[str], peak_bytes: int) -> dict[str, object]:
    """The second op needs most."""
    live = [peak_bytes if at == min(1, len(names) - 1) else peak_bytes // 2 for at in range(len(names))]
    return {
        "ops": [{"kind": "CONV_2D", "name": name, "live_bytes": each} for name, each in zip(names, live, strict=True)],
        "tensors": [
            {
                **{"name": f"{name}:0", "shape": [1, 5, 5, 8], "kind": "CONV_2D", "start": at, "end": at + 1},
                **{"offset": 0, "size_bytes": each},
            }
            for at, (name, each) in enumerate(zip(names, live, strict=True))
        ],
        **{"arena_bytes": peak_bytes, "lower_bound_bytes": peak_bytes, "layout_proven_optimal": True},
    }


def confusion(classes: Sequence[str]) -> list[list[int]]:
    """Ten examples a class; two of the first are taken for the last."""
    table = [[10 * (row == column) for column in range(len(classes))] for row in range(len(classes))]
    if len(classes) > 1:
        table[0][0], table[0][-1] = 8, 2
    return table


def trajectory() -> list[dict[str, object]]:
    common = {"update": 1, "objective": "macs", "train_loss": 2.0}
    sizes = ((0, 420_000, ""), (40, 200_000, 0.05), (60, 60_000, 0.02))
    return [
        {**common, "step": step, "size_bytes": size, "peak_bytes": size // 2, "macs": 100 * size,
         "task_loss": "" if step == 60 else 1.5, "masks_changed": changed, "peak_bytes_imprecise": size // 3}
        for step, size, changed in sizes
    ]  # fmt: skip


def pruned_rows(names: Sequence[str]) -> list[dict[str, object]]:
    columns = {"channels": (276, 80), "memory_bytes": (9000, 4000), "macs": (7000, 900), "size_bytes": (500, 90)}
    return [
        {
            **{"index": index, "op": "CONV_2D", "name": name},
            **{
                f"{column}_{when}": value
                for column, pair in columns.items()
                for when, value in zip(("before", "after"), pair, strict=True)
            },
        }
        for index, name in enumerate(names)
    ]


def error_rows(names: Sequence[str]) -> list[dict[str, object]]:
    return [
        {**{"index": index, "op": "CONV_2D", "name": name, "sqnr_db": 40 - index, "own_sqnr_db": "" if index else 41.5},
         **{"max_error_lsb": 1.0, "mean_error_lsb": 0.0, "saturated_share": 0.001, "scale": 0.1, "zero_point": 0}}
        for index, name in enumerate(names)
    ]  # fmt: skip


def put_power(path: Path, network: Network, source: str) -> Path:
    power = np.full((network.windows, network.samples), 0.45, np.float32)
    power[:, network.samples // 4 : 3 * network.samples // 4] = 0.9
    if network.spike_w:
        power[-1, network.samples // 2 + 7] = network.spike_w
    dt_s, starts = 2e-5, np.arange(network.windows, dtype=float)
    edges = starts[:, None] + dt_s * network.samples * np.array([[0.25, 0.75]])
    np.savez_compressed(
        path, source=source, power_w=power, dt_s=np.full(network.windows, dt_s), t0_s=starts, edges_s=edges
    )
    return path


def inputs(
    folder: Path,
    network: Network = PLAIN,
    *,
    library: str = LIBRARY,
    plan: dict[str, int] | None = None,
    flash_used: int = 80_000,
    budget: BudgetConfig = BUDGET,
) -> dict[str, Any]:
    """What the step is called with, of one twin and one board."""
    folder.mkdir(exist_ok=True)
    (folder / "out").mkdir()
    names, boards = network.layers, (BOARD, TWIN)
    planned = {"size_bytes": 60_000, "peak_bytes": network.peak_bytes, "macs": 8_000_000} if plan is None else plan
    footprint: dict[str, Any] = {
        "flash_bytes": flash_used,
        "ram_bytes": 70_000,
        "arena_bytes": 40_016,
        "runtime": "overlap",
    }
    footprint["regions"] = {"flash": {"used_bytes": flash_used, "size_bytes": 2_000_000}}
    footprint["placed"] = [
        {"region": "flash", "what": f"constants of {at} CONV_2D {name}", "size_bytes": 90 + at}
        for at, name in enumerate(names)
    ]
    tested = {BOARD: {"n": 200, "accuracy_device": 0.945, "accuracy_host": 0.95, "outputs_equal": 198}, TWIN: {"n": 0}}
    accuracy = {"accuracy_int8": 0.9375, "n": 640, "accuracy_float": 0.95, "confusion": confusion(network.classes)}
    history = [
        {"epoch": 1, "loss": 2.0, "validation_accuracy": 0.5},
        {"epoch": 2, "loss": 1.0, "validation_accuracy": 0.9},
    ]
    trained: dict[str, Path | None] = dict.fromkeys(
        (
            "dataset",
            "accuracy",
            "layer_error",
            "prune_metrics",
            "trajectory",
            "pruned_layers",
            "prune_history",
            "qat_history",
        )
    )
    if not network.is_brought:
        trained = {
            "dataset": put(folder / "dataset.json", {"source": network.data_source, "classes": list(network.classes)}),
            "accuracy": put(folder / "accuracy.json", accuracy),
            "layer_error": put_rows(folder / "layer_error.csv", error_rows(names)),
            "prune_metrics": put(
                folder / "metrics.json", {"before": {"macs": 56_000_000}, "macs_trained_relative": 0.1849}
            ),
            "trajectory": put_rows(folder / "trajectory.csv", trajectory()),
            "pruned_layers": put_rows(folder / "pruned_layers.csv", pruned_rows(names)),
            "prune_history": put_rows(folder / "prune_history.csv", history),
            "qat_history": put_rows(folder / "qat_history.csv", history[1:]),
        }
    (folder / "vega.js").write_text(library)

    def per_board(name: str, write: Any) -> dict[str, Path]:
        return {board: write(folder / f"{board}.{name}", board) for board in boards}

    return dict(
        chart_library=folder / "vega.js",
        model=put(folder / "model.tflite", "network"),
        **trained,
        plan=put(folder / "plan.json", planned),
        memory=put(folder / "memory.json", memory(names, network.peak_bytes)),
        footprint=per_board("footprint.json", lambda path, _: put(path, footprint)),
        firmware_memory=per_board("memory.json", lambda path, _: put(path, memory(names, 40_016))),
        samples=per_board("samples.csv", lambda path, board: put_rows(path, samples(board))),
        device_layers=per_board("layers.csv", lambda path, board: put_rows(path, layer_rows(board, names))),
        device=per_board("device.json", lambda path, board: put(path, device(board))),
        device_accuracy=per_board("accuracy.json", lambda path, board: put(path, tested[board])),
        power=per_board(
            "power.npz", lambda path, b: put_power(path, network, "measured" if b == BOARD else "simulated")
        ),
        budget=budget,
        experiment=network.experiment,
        out_dir=folder / "out",
    )


def make_report(folder: Path, network: Network = PLAIN, **more: Any) -> Report:
    """The whole step: some seconds."""
    report: Report = run.function(**inputs(folder, network, **more))
    return report


def make_tables(folder: Path, **more: Any) -> tuple[list[dict[str, Any]], str]:
    """Only summary.csv's rows and table.txt, without any chart."""
    given = inputs(folder, **more)
    trained = [given[name] for name in ("dataset", "accuracy", "plan", "prune_metrics", "budget")]
    network = network_figures(given["experiment"], *trained)
    per_board = ("footprint", "samples", "device", "device_accuracy")
    boards = [board_figures(name, *(given[kind][name] for kind in per_board)) for name in (TWIN, BOARD)]
    return list(summary_rows(network, boards)), table_text(network, boards)
