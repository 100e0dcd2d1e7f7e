"""The power trace of a device: all windows laid over each other, as an oscilloscope does, with the inferences marked.

Every sample is in the picture: a bin of the time axis shows the lowest, the mean and the highest of its samples, so a
spike of a single sample is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from stages.report.charts.vocabulary import field, hover
from stages.report.page import theme
from stages.report.page.chart import Chart

_MOST_BINS = 600  # more than one for every pixel of a phone
_BINS_A_POINTER = 4  # finer than a finger or a pointer need it


def power_chart(board: str, trace: Mapping[str, np.ndarray], energy: Mapping[str, Any]) -> Chart | None:
    """From power.npz; `energy` is that of device.json. None where there is no trace."""
    if "power_w" not in trace or not trace["power_w"].size:
        return None
    power, dt, t0, edges = (np.asarray(trace[key], float) for key in ("power_w", "dt_s", "t0_s", "edges_s"))
    windows, samples = power.shape
    times_ms = 1e3 * (t0[:, None] + dt[:, None] * np.arange(samples) - edges[:, :1])
    bins = downsampled(times_ms.ravel(), 1e3 * power.ravel(), min(_MOST_BINS, samples))
    inferences = int(energy.get("inferences_per_window") or 1)
    end_ms = float(np.mean(1e3 * (edges[:, 1] - edges[:, 0])))
    borders = np.linspace(0, end_ms, inferences + 1)
    # The pin marks the window; inside it the inferences are alike, so their borders are drawn evenly.
    marks = [
        {"row": "inference", "inference": n + 1, "ms": borders[n], "end_ms": borders[n + 1]} for n in range(inferences)
    ]
    table = pd.concat([bins.assign(row="samples", told=_told(bins)), pd.DataFrame(marks)], ignore_index=True)
    how = "measured" if str(trace["source"]) == "measured" else "simulated from the model, no board was measured"
    what = "1 inference" if inferences == 1 else f"{inferences} inferences"
    note = (
        f"{windows * samples:,} samples of {windows} windows over each other, {how}. Line: mean; band: all of them. "
        "Shaded: the inferences, from edge to edge of the timestamp pin."
    )
    return Chart(f"power_{board}", f"{board}: power during {what}", note, table, _spec(bins), 240, is_wide=True)


def downsampled(times: np.ndarray, values: np.ndarray, most: int) -> pd.DataFrame:
    """At most `most` even bins of time (from `ms` on) with lowest, mean and highest value: no spike is lost."""
    first, last = times.min(), times.max()
    width = (last - first) / most or 1.0
    bins = np.minimum(((times - first) / width).astype(np.int64), most - 1)
    low, high = np.full(most, np.inf), np.full(most, -np.inf)
    np.minimum.at(low, bins, values)
    np.maximum.at(high, bins, values)
    count = np.bincount(bins, minlength=most)
    mean = np.bincount(bins, values, most) / np.maximum(count, 1)
    table = pd.DataFrame(
        {"ms": first + width * np.arange(most), "low": low, "mean": mean, "high": high, "samples": count}
    )
    return table[count > 0].reset_index(drop=True)


def _told(bins: pd.DataFrame) -> np.ndarray:
    """Which bins answer to the pointer: of every few the one that moves most."""
    groups = (bins["high"] - bins["low"]).groupby(bins.index // _BINS_A_POINTER)
    told: np.ndarray = bins.index.isin(groups.idxmax())
    return told


def _spec(bins: pd.DataFrame) -> dict[str, Any]:
    is_sample, is_inference = ({"filter": {"field": "row", "equal": word}} for word in ("samples", "inference"))
    span = {"nice": False, "domain": [float(bins["ms"].min()), float(bins["ms"].max())]}
    x = field("ms", title="ms from the first edge", scale=span, axis={"format": ",.4~f", "grid": False})
    tip = hover(ms="ms|,.3f", low="lowest mW|,.1f", mean="mean mW|,.1f", high="highest mW|,.1f", samples="samples|,d")
    marks = hover(inference="inference|d", ms="from ms|,.3f", end_ms="to ms|,.3f")
    shade = {"type": "rect", "color": theme.SERIES[4], "opacity": 0.2, "stroke": theme.SERIES[4], "strokeDash": [2, 3]}
    band, line = {"type": "area", "opacity": 0.35}, {"type": "line", "strokeWidth": 1}
    step = {"interpolate": "step-after"}
    ends = {"y": field("low", title="mW"), "y2": {"field": "high"}}
    return {
        "layer": [
            {
                "transform": [is_inference],
                "mark": shade,
                "encoding": {"x": x, "x2": {"field": "end_ms"}, "tooltip": marks},
            },
            {"transform": [is_sample], "mark": band | step, "encoding": {"x": x, **ends}},
            {"transform": [is_sample], "mark": line | step, "encoding": {"x": x, "y": field("mean", title="mW")}},
            {
                "transform": [is_sample, {"filter": {"field": "told", "equal": True}}],
                "mark": {"type": "rule", "opacity": 0, "strokeWidth": 9},
                "encoding": {"x": x, "tooltip": tip},
            },
        ]
    }
