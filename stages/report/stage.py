"""report: one row per board of everything that was measured and modelled, and a table for the terminal.

Reads   dataset, accuracy, plan, prune_metrics, trajectory, pruned_layers; of every board footprint, samples,
        device_layers, device and device_accuracy
Writes  summary.csv, latency.csv, energy.csv, layers.csv, table.txt, report.html, figures/*.svg and *.png
Fails   StageError when an input lacks a value that must be there

Measured and modelled values never share a column; a value that does not exist is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import PerBoard, stage
from stages.nets.config import BudgetConfig


@dataclass(frozen=True, kw_only=True)
class Report:
    summary: Path  # summary.csv: one row per board
    latency: Path  # latency.csv
    energy: Path  # energy.csv
    layers: Path  # layers.csv: one row per board and op
    table: Path  # table.txt, for the terminal
    page: Path  # report.html
    figures: Path  # folder of layers_<board> and pruning_*, each as .svg and .png


@stage("report", packages=("resvg-py", "font-roboto"))
def run(
    dataset: Path,
    accuracy: Path,
    plan: Path,
    prune_metrics: Path,
    footprint: PerBoard,
    samples: PerBoard,
    device_layers: PerBoard,
    device: PerBoard,
    device_accuracy: PerBoard,
    trajectory: Path,
    pruned_layers: Path,
    *,
    budget: BudgetConfig,
    experiment: str,
    out_dir: Path,
) -> Report:
    from stages.report.figures import board_figures, network_figures
    from stages.report.page import charts, write_figures, write_page
    from stages.report.pruning import pruning_figures
    from stages.report.tables import energy_rows, latency_rows, layer_rows, summary_rows, write_csv
    from stages.report.terminal import table_text

    network = network_figures(experiment, dataset, accuracy, plan, prune_metrics, budget)
    boards = [
        board_figures(name, footprint[name], samples[name], device[name], device_accuracy[name])
        for name in sorted(samples)
    ]
    drawn = charts(boards, device_layers) | pruning_figures(trajectory, pruned_layers, budget)
    table = out_dir / "table.txt"
    table.write_text(table_text(network, boards))
    return Report(
        summary=write_csv(out_dir / "summary.csv", summary_rows(network, boards)),
        latency=write_csv(out_dir / "latency.csv", latency_rows(network, boards)),
        energy=write_csv(out_dir / "energy.csv", energy_rows(network, boards)),
        layers=write_csv(out_dir / "layers.csv", layer_rows(network, boards, device_layers)),
        table=table,
        page=write_page(out_dir / "report.html", network, boards, drawn),
        figures=write_figures(out_dir / "figures", drawn),
    )
