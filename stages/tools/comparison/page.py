"""A comparison -> one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pipeline.errors import ConfigError
from stages.charting.library import chart_library
from stages.report.charts.vocabulary import ROW_AXIS, field, hover, rows_height
from stages.report.content import Cell, Row, Table
from stages.report.page.chart import Chart
from stages.report.page.document import render
from stages.tools.comparison.sheets import Compared, figure_rows, layer_rows, setting_rows, verdict_sentence

_TONES = {"worse": "bad", "better": "", "missing": "bad"}
_MOST_BARS = 60


def write_page(path: Path, every: Sequence[Compared]) -> None:
    charts = [chart for number, each in enumerate(every, 1) if (chart := _chart(number, each)) is not None]
    library = next((each.base.library for each in every if each.base.library is not None), None)
    text = render(
        "comparison.html",
        chart_library() if library is None else library.read_text(),
        charts,
        title=f"Compared with {every[0].base.name}",
        kicker="What changed, and what of it is more than noise",
        sections=[(f"run{number}", each.other.name) for number, each in enumerate(every, 1)],
        compared=[
            _values(each, [chart.name for chart in charts if chart.name == f"changes{number}"])
            for number, each in enumerate(every, 1)
        ],
    )
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"--html {path}: cannot be written ({error.strerror}); choose another file") from error


def _values(each: Compared, charts: Sequence[str]) -> dict[str, object]:
    verdicts = {one.verdict for one in each.certain}
    return {
        "name": f"{each.other.name} against {each.base.name}",
        "tone": "bad" if "worse" in verdicts else "good",
        "sentence": verdict_sentence(each),
        "notes": [one.how for one in each.found if one.column == "accuracy_int8" and one.how],
        "charts": charts,
        "figures": _table(figure_rows(each), 2),
        "layers": _table(layer_rows(each), 2),
        "settings": _table(setting_rows(each), 1),
    }


def _table(rows: Sequence[Sequence[str]], words: int) -> Table:
    """The first columns hold words, the others numbers."""
    head, *body = rows
    columns = tuple((title, number >= words) for number, title in enumerate(head))
    return Table("", columns, tuple(Row(tuple(map(Cell, row)), _TONES.get(row[-1].split(" ")[0], "")) for row in body))


def _chart(number: int, each: Compared) -> Chart | None:
    """Relative change of every figure that has one."""
    found = [
        {"figure": f"{one.where} {one.column}".strip(), "change": one.change, "verdict": one.verdict}
        for one in each.found
        if one.change is not None and one.verdict != "same"
    ]
    found.sort(key=lambda row: -abs(float(str(row["change"]))))
    if not found:
        return None
    table = pd.DataFrame(found[:_MOST_BARS])
    spec = {
        "mark": {"type": "bar", "height": {"band": 0.72}},
        "encoding": {
            "y": field("figure", "N", sort=None, axis=ROW_AXIS),
            "x": field("change", title="change", axis={"format": "+.1%", "tickCount": 6}),
            "color": field("verdict", "N", title=None),
            "tooltip": hover(figure="figure", change="change|+.2%", verdict="verdict"),
        },
    }
    note = f"{each.other.name} against {each.base.name}; noise is shown, and called so."
    return Chart(f"changes{number}", "What moved", note, table, spec, rows_height(len(table), 22))
