"""All charts of a report, from its evidence; what there is no evidence for is not drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from stages.report.charts.device import layer_chart
from stages.report.charts.memory import memory_chart
from stages.report.charts.network import budget_chart, class_chart, confusion_chart, sqnr_chart
from stages.report.charts.power import power_chart
from stages.report.charts.training import history_chart, pruning_charts
from stages.report.evidence import Evidence
from stages.report.figures import BoardFigures, NetworkFigures
from stages.report.page.chart import Chart


def charts(network: NetworkFigures, boards: Sequence[BoardFigures], evidence: Evidence) -> list[Chart]:
    """In the order of the page."""
    return [chart for chart in _charts(network, boards, evidence) if chart is not None]


def _charts(network: NetworkFigures, boards: Sequence[BoardFigures], evidence: Evidence) -> Iterator[Chart | None]:
    budgets = [
        {"resource": name, "used": bound.used, "budget": bound.allowed, "unit": unit}
        for name, bound, unit in network.bounds
    ]
    yield budget_chart(pd.DataFrame(budgets))
    if evidence.accuracy is not None and (confusion := evidence.accuracy.get("confusion")):
        yield confusion_chart(confusion, evidence.classes)
        yield class_chart(confusion, evidence.classes)
    if evidence.layer_error is not None:
        yield sqnr_chart(evidence.layer_error)
    yield memory_chart("memory_classic", "Memory over time, every tensor whole (classic)", evidence.memory)
    yield from _firmware_memory(boards, evidence)
    for figures in boards:
        yield layer_chart(figures.board, figures.source, evidence.layers[figures.board])
    if evidence.trajectory is not None and evidence.pruned_layers is not None:
        yield from pruning_charts(evidence.trajectory, evidence.pruned_layers, network.limits)
    yield history_chart(evidence.history)
    for figures in boards:
        yield power_chart(figures.board, evidence.power[figures.board], figures.energy)


def _firmware_memory(boards: Sequence[BoardFigures], evidence: Evidence) -> Iterator[Chart]:
    """As the firmware runs it; boards that run the same share a chart."""
    seen: list[object] = []
    for figures in boards:
        record = evidence.firmware_memory[figures.board]
        if record in seen:
            continue
        seen.append(record)
        same = [each.board for each in boards if evidence.firmware_memory[each.board] == record]
        runtime = evidence.footprint[figures.board].get("runtime", "overlap")
        title = f"Memory over time in the firmware ({runtime}) of {', '.join(same)}"
        yield memory_chart(f"memory_{figures.board}", title, record)
