"""A chart: a table and a Vega-Lite description of how it is drawn. One description gives the page's chart, SVG and PNG.

Vega-Lite is written directly, as dictionaries, and compiled by vl-convert: Altair would write the same dictionaries, at
0.6 s of processor time for a report. Titles, names and values are data wherever they come from outside: they never
become a part of an expression.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import vl_convert

from stages.report.page.text import visible
from stages.report.page.theme import CONFIG, SURFACE

PNG_SCALE = 1.5  # sharp where a page is printed or a screen is fine
_DATA = "table"
_LINE = 110  # characters of a note in a picture
_WIDTH = 680  # pixels between the axes of a picture
_LEADING = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes text that begins so for a formula


@dataclass(frozen=True, eq=False)
class Chart:
    """`spec` has marks and encodings; data, size and colours come from here and from the theme."""

    name: str  # of its files, and its anchor in a page: letters, digits, underscores
    title: str
    note: str  # one sentence: what is to be seen
    data: pd.DataFrame  # every value that is shown, tidy
    spec: Mapping[str, Any]
    height: int = 240
    is_wide: bool = False  # takes the whole row of a page

    @cached_property
    def vega(self) -> dict[str, Any]:
        """Compiled, still without its data."""
        size = {"width": "container", "height": self.height, "autosize": {"type": "fit-x", "contains": "padding"}}
        table = {"datasets": {_DATA: []}, "data": {"name": _DATA}}
        compiled: dict[str, Any] = vl_convert.vegalite_to_vega({**size, **table, "config": CONFIG, **self.spec})
        return compiled

    @cached_property
    def svg(self) -> str:
        """On its own: with title and a white ground."""
        lines = textwrap.wrap(visible(self.note), _LINE)
        title = {"text": visible(self.title), "subtitle": lines, "anchor": "start", "offset": 14}
        data = [{**each, "values": records(self.data)} if each["name"] == _DATA else each for each in self.vega["data"]]
        # A width that is known needs one pass of layout instead of two.
        width = {"name": "width", "value": _WIDTH}
        signals = [width if each["name"] == "width" else each for each in self.vega["signals"]]
        marks = [each for each in self.vega["marks"] if not _answers_only(each)]
        look = {"title": title, "background": SURFACE, "padding": 12, "autosize": "pad"}
        look |= {"signals": signals, "marks": marks}
        drawn: str = vl_convert.vega_to_svg({**self.vega, "data": data, **look}, allowed_base_urls=[])
        return drawn

    @property
    def png(self) -> bytes:
        drawn: bytes = vl_convert.svg_to_png(self.svg, scale=PNG_SCALE)
        return drawn

    @property
    def csv(self) -> str:
        return csv_text(self.data)

    @property
    def for_page(self) -> dict[str, Any]:
        """What the page's script draws."""
        plain = json.loads(_visible(self.data).to_json(orient="split", index=False, double_precision=8))
        return {"name": self.name, "spec": self.vega, "columns": plain["columns"], "rows": plain["data"]}


def _answers_only(mark: Mapping[str, Any]) -> bool:
    """Nothing is seen of it; it is there for the pointer."""
    opacity = mark.get("encode", {}).get("update", {}).get("opacity", {})
    return isinstance(opacity, Mapping) and opacity.get("value") == 0


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row; a value that does not exist is None."""
    found: list[dict[str, Any]] = json.loads(_visible(table).to_json(orient="records", double_precision=8))
    return found


def csv_text(table: pd.DataFrame) -> str:
    """As a CSV file; text that a spreadsheet would compute is kept text by an apostrophe."""
    safe = _mapped(_visible(table), lambda text: f"'{text}" if text.startswith(_LEADING) else text)
    return str(safe.to_csv(index=False, lineterminator="\n"))


def _visible(table: pd.DataFrame) -> pd.DataFrame:
    return _mapped(table, visible)


def _mapped(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """With every text changed."""
    texts = table.select_dtypes(["object", "string"])
    return table.assign(
        **{name: [change(cell) if isinstance(cell, str) else cell for cell in texts[name]] for name in texts}
    )


def write_figures(folder: Path, charts: Iterable[Chart]) -> Path:
    """Three files per chart: SVG, PNG, CSV."""
    folder.mkdir(exist_ok=True)
    for chart in charts:
        (folder / f"{chart.name}.svg").write_text(chart.svg)
        (folder / f"{chart.name}.png").write_bytes(chart.png)
        (folder / f"{chart.name}.csv").write_text(chart.csv)
    return folder
