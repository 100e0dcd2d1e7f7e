"""Charts of a device: what each op takes, and the power it draws meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from stages.report.charts.vocabulary import ROW_AXIS, field, hover, labelled, rows_height
from stages.report.page import theme
from stages.report.page.chart import Chart

MOST_BARS = 60
_MOST_BINS = 600  # of a trace: more than one for every pixel of a phone
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
    x = field("taken", title=_BEST_KNOWN[column], axis={"format": "~s", "tickCount": 6})
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


def downsampled(values: np.ndarray, most: int) -> pd.DataFrame:
    """At most `most` bins (`at`: their first value) with lowest, mean and highest value: no spike is lost."""
    size = -(-len(values) // most)
    starts = np.arange(0, len(values), size)
    counts = np.diff([*starts, len(values)])
    return pd.DataFrame(
        {
            "at": starts,
            "low": np.minimum.reduceat(values, starts),
            "mean": np.add.reduceat(values, starts, dtype=np.float64) / counts,
            "high": np.maximum.reduceat(values, starts),
        }
    )


def power_charts(board: str, trace: Mapping[str, np.ndarray], energy: Mapping[str, Any]) -> list[Chart]:
    """One window of inferences at its full resolution, then all of them one behind the other."""
    if "power_w" not in trace or not trace["power_w"].size:
        return []
    words = "measured" if str(trace["source"]) == "measured" else "simulated from the model, no board was measured"
    inferences = energy.get("inferences_per_window") or 1
    one = _windows(trace, slice(0, 1))
    count = len(trace["power_w"])
    plural = "inference" if inferences == 1 else "inferences"
    charts = [
        _trace(
            f"power_{board}",
            f"{board}: power during {inferences} {plural}",
            f"The first of {count} windows, {words}. Shaded: from edge to edge of the timestamp pin.",
            one,
            inferences,
        )
    ]
    if count > 1:
        charts.append(
            _trace(
                f"power_all_{board}",
                f"{board}: power in all {count} windows",
                f"One behind the other, time between them cut out; {words}.",
                _windows(trace, slice(None)),
                1,
            )
        )
    return charts


def _windows(trace: Mapping[str, np.ndarray], which: slice) -> pd.DataFrame:
    """Rows `sample` (low, mean, high of a bin) and `inferences` (a window's two edges), in ms from the first sample."""
    power, dt, t0, edges = (trace[key][which] for key in ("power_w", "dt_s", "t0_s", "edges_s"))
    per_window = max(20, _MOST_BINS // len(power))
    parts, begin_ms = [], 0.0
    for number, (values, dt_s, t0_s, (start, end)) in enumerate(zip(power, dt, t0, edges, strict=True)):
        bins = downsampled(np.asarray(values, np.float64) * 1e3, per_window)
        parts.append(
            bins.assign(row="sample", window=number, start_ms=begin_ms + bins["at"] * dt_s * 1e3).drop(columns="at")
        )
        marks = {
            "row": "inferences",
            "window": number,
            "start_ms": begin_ms + (start - t0_s) * 1e3,
            "end_ms": begin_ms + (end - t0_s) * 1e3,
        }
        parts.append(pd.DataFrame([marks]))
        begin_ms += len(values) * dt_s * 1e3
    return pd.concat(parts, ignore_index=True)


def _trace(name: str, title: str, note: str, table: pd.DataFrame, inferences: int) -> Chart:
    is_sample, is_window, is_border = (
        {"filter": {"field": "row", "equal": word}} for word in ("sample", "inferences", "border")
    )
    last = float(table["start_ms"].max())
    x = field(
        "start_ms", title="ms", scale={"nice": False, "domain": [0, last]}, axis={"format": ",.4~f", "grid": False}
    )
    tip = hover(
        start_ms="ms|,.3f", low="lowest mW|,.1f", mean="mean mW|,.1f", high="highest mW|,.1f", window="window|d"
    )
    marks = hover(window="window|d", start_ms="from ms|,.3f", end_ms="to ms|,.3f")
    if inferences > 1:
        # The pin marks the window; inside it the inferences are alike, so their borders are drawn evenly.
        window = table[table["row"] == "inferences"].iloc[0]
        inner = np.linspace(window["start_ms"], window["end_ms"], inferences + 1)[1:-1]
        table = pd.concat([table, pd.DataFrame({"row": "border", "window": 0, "start_ms": inner})], ignore_index=True)
    layers = [
        {"transform": [is_window], "mark": {"type": "rect", "color": theme.SERIES[4], "opacity": 0.2},
         "encoding": {"x": x, "x2": {"field": "end_ms"}, "tooltip": marks}},
        {"transform": [is_border], "mark": {"type": "rule", "color": theme.SERIES[4], "strokeDash": [2, 3]},
         "encoding": {"x": x}},
        {"transform": [is_sample], "mark": {"type": "area", "opacity": 0.35, "interpolate": "step-after"},
         "encoding": {"x": x, "y": field("low", title="mW"), "y2": {"field": "high"}}},
        {"transform": [is_sample], "mark": {"type": "line", "strokeWidth": 1, "interpolate": "step-after"},
         "encoding": {"x": x, "y": field("mean", title="mW")}},
        {"transform": [is_sample], "mark": {"type": "rule", "opacity": 0, "strokeWidth": 4},
         "encoding": {"x": x, "y": field("low", title="mW"), "y2": {"field": "high"}, "tooltip": tip}},
    ]  # fmt: skip
    return Chart(name, title, note, table, {"layer": layers}, 230, is_wide=True)
