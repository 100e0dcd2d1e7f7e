"""What each op takes on a device."""

from __future__ import annotations

import pandas as pd

from stages.report.charts.vocabulary import ROW_AXIS, field, hover, labelled, rows_height
from stages.report.page import theme
from stages.report.page.chart import Chart

MOST_BARS = 60
_BEST_KNOWN = {
    "cycles": "cycles, measured",
    "cycles_modelled": "cycles, modelled",
    "instructions": "instructions, counted",
}


def best_known(layers: pd.DataFrame) -> str | None:
    """The column that says most about time, of those that every op has: measured before modelled before counted."""
    return next((name for name in _BEST_KNOWN if not layers.empty and layers[name].notna().all()), None)


def layer_chart(board: str, source: str, layers: pd.DataFrame) -> Chart | None:
    """One bar per op, of many ops those that take most."""
    column = best_known(layers)
    if column is None:
        return None
    table = layers[["index", "op", "name", "kernel", "macs", column]].rename(columns={column: "taken"})
    table["share"] = table["taken"] / (table["taken"].sum() or 1)
    table["per_mac"] = (table["taken"] / table["macs"]).where(table["macs"] > 0)
    table["layer"] = labelled(table["index"], table["name"])
    shown = table.nlargest(MOST_BARS, "taken").sort_index() if len(table) > MOST_BARS else table
    y = field("layer", "N", sort=None, axis=ROW_AXIS)
    room = {"domain": [0, 1.3 * float(shown["taken"].max() or 1)], "nice": False}  # for the share beside the bar
    x = field("taken", title=_BEST_KNOWN[column], scale=room, axis={"format": "~s", "tickCount": 5})
    tip = hover(
        layer="layer",
        op="op",
        kernel="kernel",
        taken=f"{_BEST_KNOWN[column]}|,d",
        share="share|.1%",
        per_mac="per MAC|.2f",
        macs="MACs|,d",
    )
    spec = {
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.72}}, "encoding": {"y": y, "x": x, "tooltip": tip}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": theme.SOFT},
                "encoding": {"y": y, "x": x, "text": field("share", format=".1%")},
            },
        ]
    }
    which = "" if len(shown) == len(table) else f", the {len(shown)} that take most of {len(table)}"
    title = f"{board} ({source}): {_BEST_KNOWN[column]} of each op{which}"
    note = f"{table['taken'].sum():,.0f} in all."
    return Chart(f"layers_{board}", title, note, shown.reset_index(drop=True), spec, rows_height(len(shown), 22))
