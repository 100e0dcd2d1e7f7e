"""Many runs against each other: accuracy over cost, with the spread over seeds, the budgets and published points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from stages.report.charts.published import PUBLISHED
from stages.report.charts.vocabulary import Spec, colours, field, hover
from stages.report.page import theme
from stages.report.page.chart import Chart

COSTS = {  # column: title, does it belong to a board
    "size_bytes": ("size in bytes", False),
    "peak_bytes": ("peak memory in bytes", False),
    "macs": ("MACs", False),
    "latency_ms": ("latency in ms, measured", True),
    "latency_ms_modelled": ("latency in ms, modelled", True),
    "energy_mj": ("energy in mJ, measured", True),
    "energy_mj_modelled": ("energy in mJ, modelled", True),
}
_NAMES = {
    "size_bytes": "size",
    "peak_bytes": "peak memory",
    "macs": "MACs",
    "latency_ms": "measured latency",
    "latency_ms_modelled": "modelled latency",
    "energy_mj": "measured energy",
    "energy_mj_modelled": "modelled energy",
}


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per variant and board: means over its runs, 2 standard deviations where there are several seeds.

    Of `runs`: columns experiment, variant, board, source, run, seed, accuracy_int8 and those of COSTS.
    """
    found = []
    for (experiment, variant, board), group in runs.groupby(
        ["experiment", "variant", "board"], sort=False, dropna=False
    ):
        one_per_seed = group.drop_duplicates("seed", keep="last")  # the same seed again is the same network again
        row: dict[str, Any] = {"experiment": experiment, "variant": variant, "board": board}
        row |= {"source": group["source"].iloc[-1], "seeds": len(one_per_seed), "runs": ", ".join(one_per_seed["run"])}
        for column in ("accuracy_int8", *COSTS):
            values = one_per_seed[column].astype(float).dropna()
            row[column] = values.mean() if len(values) else None
            row[f"{column}_2sigma"] = 2 * values.std() if len(values) > 1 else None
        found.append(row)
    return pd.DataFrame(found)


def front(costs: Sequence[float], accuracies: Sequence[float]) -> list[bool]:
    """Which points no other one beats: none is as cheap and better, or cheaper and as good."""
    cost, good = np.asarray(costs, float), np.asarray(accuracies, float)
    return [
        not bool(np.any((cost <= c) & (good >= a) & ((cost < c) | (good > a)))) for c, a in zip(cost, good, strict=True)
    ]


def pareto_charts(table: pd.DataFrame, limits: Mapping[str, Mapping[str, int]]) -> Iterator[Chart]:
    """`table` is what `points` gives, `limits` the budgets of each experiment by column."""
    for column, (title, is_of_board) in COSTS.items():
        rows = table.dropna(subset=[column, "accuracy_int8"])
        if not is_of_board:
            rows = rows.drop_duplicates(["experiment", "variant"])
        if not rows.empty:
            yield _chart(column, title, is_of_board, rows, limits)


def _chart(
    column: str, title: str, is_of_board: bool, rows: pd.DataFrame, limits: Mapping[str, Mapping[str, int]]
) -> Chart:
    runs = rows.rename(columns={column: "cost", f"{column}_2sigma": "cost_2sigma"})
    runs = runs[
        [
            "experiment",
            "variant",
            "board",
            "source",
            "seeds",
            "accuracy_int8",
            "accuracy_int8_2sigma",
            "cost",
            "cost_2sigma",
        ]
    ].assign(row="run")
    for axis in ("cost", "accuracy_int8"):
        spread = runs[f"{axis}_2sigma"].astype(float).fillna(0)
        runs[f"{axis}_low"], runs[f"{axis}_high"] = runs[axis] - spread, runs[axis] + spread
    groups = ["board"] if is_of_board else []
    runs["front"] = False
    for _, group in runs.groupby(groups) if groups else [(None, runs)]:
        runs.loc[group.index, "front"] = front(group["cost"], group["accuracy_int8"])
    experiments = list(dict.fromkeys(runs["experiment"]))
    budgets = [
        {"row": "budget", "experiment": name, "cost": limits[name][column]}
        for name in experiments
        if column in limits.get(name, {})
    ]
    theirs = [
        {"row": "published", "experiment": f"{each.model} (the paper's)", "cost": cost, "accuracy_int8": each.accuracy}
        for name in experiments
        for each in PUBLISHED.get(name.removesuffix("-quick"), ())
        if (cost := getattr(each, column, None)) is not None
    ]
    data = pd.concat([runs, *(pd.DataFrame(more) for more in (budgets, theirs) if more)], ignore_index=True)
    note = "Bars: 2 standard deviations over seeds. Line: what nothing beats."
    note += " Dashed: the budget." if budgets else ""
    note += " Diamonds: the paper's own points, on its data." if theirs else ""
    published = list(dict.fromkeys(each["experiment"] for each in theirs))
    spec = _spec(title, is_of_board, experiments, published, has_budgets=bool(budgets))
    return Chart(f"pareto_{column}", f"Accuracy against {_NAMES[column]}", note, data, spec, 340)


def _spec(
    title: str, is_of_board: bool, experiments: Sequence[str], published: Sequence[str], has_budgets: bool
) -> Spec:
    def only(row: str) -> Spec:
        return {"filter": {"field": "row", "equal": row}}

    x = field("cost", title=title, scale={"zero": False, "padding": 14}, axis={"format": "~s", "tickCount": 6})
    y = field("accuracy_int8", title="int8 accuracy", scale={"zero": False, "padding": 14}, axis={"format": ".1%"})
    series = {name: theme.SERIES[at % len(theme.SERIES)] for at, name in enumerate((*experiments, *published))}
    colour = field("experiment", "N", scale=colours(series))
    tip = hover(experiment="experiment", variant="changed", board="board", source="source", seeds="seeds|d")
    tip += hover(cost=f"{title}|,.4~f", cost_2sigma="± 2 sigma|,.4~f", accuracy_int8="accuracy|.2%")
    tip += hover(accuracy_int8_2sigma="± 2 sigma|.2%")
    theirs = hover(experiment="published", cost=f"{title}|,.4~f", accuracy_int8="accuracy|.2%")
    line: Spec = {"x": x, "y": y, "order": field("cost"), **({"detail": [field("board", "N")]} if is_of_board else {})}
    shape = {"shape": field("board", "N")} if is_of_board else {}
    low, high = field("cost_low", title=title), {"field": "cost_high"}
    worse, better = field("accuracy_int8_low", title="int8 accuracy"), {"field": "accuracy_int8_high"}
    budget: Spec = {
        "transform": [only("budget")],
        "mark": {"type": "rule", "strokeDash": [5, 3], "strokeWidth": 1.5},
        "encoding": {"x": x, "color": colour, "tooltip": hover(experiment="budget of", cost=f"{title}|,.0f")},
    }
    diamond: Spec = {
        "transform": [only("published")],
        "mark": {"type": "point", "shape": "diamond", "size": 130, "filled": False, "strokeWidth": 2.5},
        "encoding": {"x": x, "y": y, "color": colour, "tooltip": theirs},
    }
    own: list[Spec] = [
        {
            "transform": [only("run"), {"filter": {"field": "front", "equal": True}}],
            "mark": {"type": "line", "color": theme.BEFORE, "strokeWidth": 1.5, "interpolate": "step-after"},
            "encoding": line,
        },
        {
            "transform": [only("run")],
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": low, "x2": high, "y": y, "color": colour},
        },
        {
            "transform": [only("run")],
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": worse, "y2": better, "color": colour},
        },
        {
            "transform": [only("run")],
            "mark": {"type": "point", "size": 80},
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip, **shape},
        },
    ]
    return {"layer": [*([budget] if has_budgets else []), *own, *([diamond] if published else [])]}
