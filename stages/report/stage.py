"""report: one row per board of everything that was measured and modelled, a table for the terminal, a page.

Reads   chart_library, model, plan, memory; where the run trains, dataset, accuracy, layer_error, prune_metrics,
        trajectory, pruned_layers and the histories; of every board footprint, firmware_memory, samples, device_layers,
        device, device_accuracy and power
Writes  summary.csv, latency.csv, energy.csv, layers.csv, table.txt, report.html, figures/*.svg, *.png and *.csv
Fails   StageError when an input lacks a value that must be there

Measured and modelled values never share a column; a value that does not exist is empty. Which run shows the page is
filled in afterwards, see page/run_record.py.
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
    figures: Path  # folder: every chart of the page as .svg, .png and .csv


@stage("report", packages=("vl-convert-python", "jinja2", "pandas"), sources=("stages/report/page/templates",))
def run(
    chart_library: Path,
    model: Path,
    dataset: Path | None,
    accuracy: Path | None,
    layer_error: Path | None,
    plan: Path,
    memory: Path,
    prune_metrics: Path | None,
    footprint: PerBoard,
    firmware_memory: PerBoard,
    samples: PerBoard,
    device_layers: PerBoard,
    device: PerBoard,
    device_accuracy: PerBoard,
    power: PerBoard,
    trajectory: Path | None,
    pruned_layers: Path | None,
    prune_history: Path | None,
    qat_history: Path | None,
    *,
    budget: BudgetConfig,
    experiment: str,
    out_dir: Path,
) -> Report:
    from stages.report.drawn import charts
    from stages.report.evidence import read_evidence
    from stages.report.figures import board_figures, network_figures
    from stages.report.page.chart import write_figures
    from stages.report.report_page import report_page
    from stages.report.tables import energy_rows, latency_rows, layer_rows, summary_rows, write_csv
    from stages.report.terminal import table_text

    network = network_figures(experiment, dataset, accuracy, plan, prune_metrics, budget, model)
    boards = [
        board_figures(name, footprint[name], samples[name], device[name], device_accuracy[name])
        for name in sorted(samples)
    ]
    evidence = read_evidence(
        dataset=dataset,
        accuracy=accuracy,
        layer_error=layer_error,
        memory=memory,
        trajectory=trajectory,
        pruned_layers=pruned_layers,
        history={"prune": prune_history, "qat": qat_history},
        footprint=footprint,
        firmware_memory=firmware_memory,
        device_layers=device_layers,
        power=power,
    )
    drawn = charts(network, boards, evidence)
    table, page = out_dir / "table.txt", out_dir / "report.html"
    table.write_text(table_text(network, boards))
    page.write_text(report_page(network, boards, evidence, drawn, chart_library.read_text()))
    return Report(
        summary=write_csv(out_dir / "summary.csv", summary_rows(network, boards)),
        latency=write_csv(out_dir / "latency.csv", latency_rows(network, boards)),
        energy=write_csv(out_dir / "energy.csv", energy_rows(network, boards)),
        layers=write_csv(out_dir / "layers.csv", layer_rows(network, boards, device_layers)),
        table=table,
        page=page,
        figures=write_figures(out_dir / "figures", drawn),
    )
