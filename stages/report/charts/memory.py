"""Memory over time: op on x, bytes on y, every activation as a block at its place in the arena (memory.json)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from stages.report.charts.vocabulary import colours, field, hover
from stages.report.page import theme
from stages.report.page.chart import Chart

_COLOURS = {  # by the op that computes the tensor; others take what is left
    "input": theme.SERIES[7],
    "CONV_2D": theme.SERIES[0],
    "DEPTHWISE_CONV_2D": theme.SERIES[2],
    "FULLY_CONNECTED": theme.SERIES[3],
    "ADD": theme.SERIES[1],
    "MUL": theme.SERIES[1],
    "AVERAGE_POOL_2D": theme.SERIES[4],
    "MAX_POOL_2D": theme.SERIES[4],
    "MEAN": theme.SERIES[4],
}
_FUSED, _OTHER = theme.SERIES[5], theme.SERIES[6]


def bottleneck(record: Mapping[str, Any]) -> int:
    """The op during which most bytes are alive."""
    ops = record["ops"]
    return max(range(len(ops)), key=lambda op: ops[op]["live_bytes"])


def memory_chart(name: str, title: str, record: Mapping[str, Any]) -> Chart:
    """Rows are tensors (blocks) and ops (bytes alive), told apart by the column `row`."""
    table = _table(record)
    hot, arena = bottleneck(record), record["arena_bytes"]
    kinds = list(dict.fromkeys(table[table["row"] == "tensor"]["kind"]))
    proof = "minimal" if record["layout_proven_optimal"] else f"at least {record['lower_bound_bytes']:,} B are needed"
    x = field(
        "start",
        title="op",
        scale={"domain": [0, len(record["ops"])], "nice": False},
        axis={"tickMinStep": 1, "format": "d", "grid": False},
    )
    y = field("bottom", title="bytes of the arena", scale={"domainMin": 0}, axis={"format": ",d"})
    ends = {"x": x, "x2": {"field": "end"}, "y": y, "y2": {"field": "top"}}
    is_tensor, is_op = ({"filter": {"field": "row", "equal": word}} for word in ("tensor", "op"))
    tip = hover(name="", kind="kind", shape="shape", bytes="bytes|,d", bottom="offset|,d", ops="ops")
    alive = hover(name="op", kind="kind", bytes="bytes alive|,d", ops="number")
    column = {"x": x, "x2": {"field": "end"}}
    is_hot = {"filter": {"field": "start", "equal": hot}}
    kind = field("kind", "N", scale=colours({kind: _colour(kind) for kind in kinds}))
    layers = [
        {
            "transform": [is_op, is_hot],
            "mark": {"type": "rect", "color": theme.BAD, "opacity": 0.14},
            "encoding": {**column, "tooltip": alive},
        },
        {
            "transform": [is_tensor],
            "mark": {"type": "rect", "cornerRadius": 2, "stroke": theme.SURFACE, "strokeWidth": 1},
            "encoding": {**ends, "tooltip": tip, "color": kind},
        },
        {
            "transform": [is_op],
            "mark": {"type": "rule", "color": theme.BAD, "strokeWidth": 2},
            "encoding": {**column, "y": field("top"), "tooltip": alive},
        },
        {
            "transform": [is_op, is_hot],
            "mark": {"type": "text", "color": theme.BAD, "fontWeight": "bold", "dy": -9},
            "encoding": {"x": field("middle"), "y": field("top"), "text": {"value": "bottleneck"}},
        },
        {"mark": {"type": "rule", "strokeDash": [6, 4]}, "encoding": {"y": {"datum": arena}}},
    ]
    worst = record["ops"][hot]
    note = (
        f"Arena {arena:,} B ({proof}), the dashed line. Red: bytes alive during each op; most in op {hot}, "
        f"{worst['kind']} {worst['name']}, {worst['live_bytes']:,} B."
    )
    return Chart(name, title, note, table, {"layer": layers}, 320, is_wide=True)


def _colour(kind: str) -> str:
    return _FUSED if "+" in kind else _COLOURS.get(kind, _OTHER)


def _table(record: Mapping[str, Any]) -> pd.DataFrame:
    tensors = [
        {
            **{"row": "tensor", "name": each["name"], "kind": each["kind"], "shape": "x".join(map(str, each["shape"]))},
            **{"start": each["start"], "end": each["end"], "middle": (each["start"] + each["end"]) / 2},
            **{"bottom": each["offset"], "top": each["offset"] + each["size_bytes"], "bytes": each["size_bytes"]},
            "ops": f"{int(each['start'])} to {max(int(each['start']), -int(-each['end'] // 1) - 1)}",
        }
        for each in record["tensors"]
    ]
    ops = [
        {
            **{"row": "op", "name": op["name"], "kind": op["kind"], "shape": "", "start": at, "end": at + 1},
            **{"middle": at + 0.5, "bottom": 0, "top": op["live_bytes"], "bytes": op["live_bytes"], "ops": str(at)},
        }
        for at, op in enumerate(record["ops"])
    ]
    return pd.DataFrame([*tensors, *ops])
