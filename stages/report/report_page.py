"""report.html: the figures, the evidence and its charts on one page."""

from __future__ import annotations

from collections.abc import Sequence

from stages.report import content
from stages.report.evidence import Evidence
from stages.report.figures import BoardFigures, NetworkFigures
from stages.report.page.chart import Chart
from stages.report.page.document import percent, render


def report_page(
    network: NetworkFigures,
    boards: Sequence[BoardFigures],
    evidence: Evidence,
    charts: Sequence[Chart],
    library: str,
) -> str:
    def named(start: str) -> list[str]:
        return [chart.name for chart in charts if chart.name.startswith(start)]

    has = {
        "budgets": bool(named("budgets")),
        "accuracy": evidence.accuracy is not None,
        "pruning": bool(named("pruning_")),
        "training": bool(named("history") or named("pruning_losses")),
        "power": bool(named("power_")),
    }
    return render(
        "report.html",
        library,
        charts,
        title=network.experiment,
        kicker=_kicker(network, boards),
        board_names=[figures.board for figures in boards],
        sections=list(content.sections(has)),
        has=has,
        verdict=content.verdict(network, boards),
        cards=content.cards(network, boards, evidence.accuracy),
        boards=content.board_table(boards, evidence),
        notes=content.notes(boards),
        accuracy_sentence=_accuracy_sentence(network, evidence),
        confusions=content.confusion_rows(evidence),
        memory_charts=named("memory_"),
        layer_charts=named("layers_"),
        layer_tables=[content.layer_table(figures, evidence) for figures in boards],
        pruning_charts=[name for name in named("pruning_") if name != "pruning_losses"],
        pruning_sentence=_pruning_sentence(network),
        power_charts=named("power_"),
    )


def _kicker(network: NetworkFigures, boards: Sequence[BoardFigures]) -> str:
    where = ", ".join(f"{figures.board} ({figures.source})" for figures in boards)
    return f"{network.data_source or 'a network that was brought along'} · {where}"


def _accuracy_sentence(network: NetworkFigures, evidence: Evidence) -> str:
    record = evidence.accuracy or {}
    words = [f"int8 {percent(network.accuracy_int8)}"]
    for key, name in (("accuracy_float", "float"), ("accuracy_fake_quant", "with rounding in training")):
        if record.get(key) is not None:
            words.append(f"{name} {percent(record[key])}")
    counted = f" of {network.accuracy_n:,} test examples" if network.accuracy_n else ""
    agreed = record.get("agreement_float")
    more = "" if agreed is None else f" int8 and float choose the same class for {percent(agreed)}."
    return f"{', '.join(words)}{counted}.{more} {record.get('warning', '')}".rstrip()


def _pruning_sentence(network: NetworkFigures) -> str:
    if network.unpruned_macs is None or network.macs_trained_relative is None:
        return "What training made of the layers."
    share = f"{100 * network.macs_trained_relative:.0f} % of the MACs of training all of it"
    return (
        f"Pruned from {network.unpruned_macs:,} to {network.macs.used:,} MACs while it trained; training took {share}."
    )
