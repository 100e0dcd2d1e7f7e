"""A template and its values -> the text of a page. One file: style, script, chart library and data are inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stages.report.page import theme
from stages.report.page.chart import Chart
from stages.report.page.run_record import EMPTY_RECORD, script_json
from stages.report.page.text import visible

NOTHING = "–"  # for a value that does not exist


def render(template: str, library: str, charts: Sequence[Chart], **values: Any) -> str:
    """`template`, which extends base.html, shows `charts` by their names; `library` is vega.js (see charting)."""
    known = {chart.name: chart for chart in charts}
    return (
        _environment()
        .get_template(template)
        .render(
            charts=known,
            chart_data=Markup(script_json([chart.for_page for chart in charts])),
            dark_colours=Markup(script_json(theme.DARK)),
            library=Markup(library),
            empty_record=Markup(EMPTY_RECORD),
            theme=theme,
            **values,
        )
    )


def count(value: float | None) -> str:
    """A whole number with thousands set apart."""
    return NOTHING if value is None else f"{value:,.0f}"


def fixed(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 2) -> str:
    return NOTHING if share is None else f"{100 * share:.{digits}f} %"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("stages.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"count": count, "fixed": fixed, "percent": percent}
    return environment
