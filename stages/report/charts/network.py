"""Charts of the network as a whole: its resources against their budgets, and what it says about the test examples."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from stages.report.charts.vocabulary import ROW_AXIS, colours, field, hover, rows_height
from stages.report.page import theme
from stages.report.page.chart import Chart

MOST_CLASSES = 40  # of a matrix that can be read
_STEPS = (0.0, 0.1, 0.3, 0.6)  # shares of a class from which a cell is darker


def budget_chart(budgets: pd.DataFrame) -> Chart | None:
    """Columns resource, used, budget, unit; one bar per resource, as long as its share of the budget."""
    table = budgets.dropna(subset=["budget"]).copy()
    if table.empty:
        return None
    table["share"] = table["used"] / table["budget"]
    table["state"] = [
        "holds" if used <= limit else "exceeded" for used, limit in zip(table["used"], table["budget"], strict=True)
    ]
    most = max(1.0, float(table["share"].max()))
    y = field("resource", "N", sort=None, axis={"labelFontSize": 13, "ticks": False, "domain": False})
    x = field(
        "share", title="share of the budget", scale={"domain": [0, 1.08 * most]}, axis={"format": "%", "tickCount": 6}
    )
    tip = hover(resource="resource", used="used|,.0f", budget="budget|,.0f", unit="unit", share="share|.2%", state="")
    state = field("state", "N", scale=colours({"holds": theme.GOOD, "exceeded": theme.BAD}), legend=None)
    spec = {
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.55}},
                "encoding": {"y": y, "x": x, "color": state, "tooltip": tip},
            },
            {
                "mark": {"type": "text", "align": "right", "dx": -7, "fontSize": 12, "color": theme.ON_STRONG},
                "encoding": {"y": y, "x": x, "text": field("share", format=".1%")},
            },
            {"mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [5, 3]}, "encoding": {"x": {"datum": 1}}},
        ]
    }
    return Chart(
        "budgets",
        "Resources against their budgets",
        "The dashed line is the budget.",
        table,
        spec,
        rows_height(len(table), 42),
        True,
    )


def confusion_table(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> pd.DataFrame:
    """One row per cell: true class, chosen class, examples, and their share of the true class."""
    cells = [
        {"true": classes[row], "chosen": classes[column], "examples": count, "share": count / (sum(counts) or 1)}
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
    ]
    return pd.DataFrame(cells, columns=["true", "chosen", "examples", "share"])


def confusion_chart(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> Chart | None:
    """A matrix with its counts; more classes than can be read have none."""
    if not 0 < len(classes) <= MOST_CLASSES:
        return None
    table = confusion_table(confusion, classes)
    table["tone"] = [_tone(row.true == row.chosen, row.examples, row.share) for row in table.itertuples()]
    tones = (
        {"none": theme.EMPTY}
        | {f"right {n}": c for n, c in enumerate(theme.RIGHT)}
        | {f"wrong {n}": c for n, c in enumerate(theme.WRONG)}
    )
    order = list(dict.fromkeys(classes))
    x = field(
        "chosen",
        "N",
        "chosen class",
        sort=order,
        axis={"labelAngle": -45, "orient": "bottom", "ticks": False, "domain": False},
    )
    y = field("true", "N", "true class", sort=order, axis={"ticks": False, "domain": False})
    tip = hover(true="true class", chosen="chosen class", examples="examples|,d", share="share of the class|.1%")
    strong = [f"{word} {step}" for word in ("right", "wrong") for step in (2, 3)]
    letters = {
        "condition": {"test": {"field": "tone", "oneOf": strong}, "value": theme.ON_STRONG},
        "value": theme.ON_PALE,
    }
    layers = [
        {"mark": {"type": "rect", "cornerRadius": 2, "stroke": theme.SURFACE, "strokeWidth": 1.5},
         "encoding": {"x": x, "y": y, "color": field("tone", "N", scale=colours(tones), legend=None), "tooltip": tip}}
    ]  # fmt: skip
    if len(classes) <= 20:
        layers.append(
            {"transform": [{"filter": {"field": "examples", "gt": 0}}], "mark": {"type": "text", "fontSize": 11},
             "encoding": {"x": x, "y": y, "text": field("examples", format="d"), "color": letters, "tooltip": tip}}
        )  # fmt: skip
    height = max(150, 30 * len(classes)) if len(classes) <= 16 else 18 * len(classes)
    return Chart(
        "confusion",
        "Confusion matrix",
        "Test examples by their true class (row) and the class that int8 chose (column); blue is right, red is wrong.",
        table,
        {"layer": layers},
        height,
    )


def class_chart(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> Chart | None:
    """Accuracy of each class, the worst first; of many classes the worst ones."""
    rows = [
        {"class": name, "accuracy": counts[at] / sum(counts), "right": counts[at], "examples": sum(counts)}
        for at, (name, counts) in enumerate(zip(classes, confusion, strict=True))
        if sum(counts)
    ]
    if not rows:
        return None
    table = pd.DataFrame(rows).sort_values(["accuracy", "class"]).head(MOST_CLASSES).reset_index(drop=True)
    y = field("class", "N", sort=None, axis=ROW_AXIS)
    x = field("accuracy", title="accuracy", scale={"domain": [0, 1]}, axis={"format": "%"})
    tip = hover(**{"class": "class"}, accuracy="accuracy|.2%", right="right|,d", examples="examples|,d")
    spec = {
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": {"y": y, "x": x, "tooltip": tip}},
            {
                "mark": {"type": "text", "align": "right", "dx": -5, "color": theme.ON_STRONG},
                "encoding": {"y": y, "x": x, "text": field("accuracy", format=".1%")},
            },
        ]
    }
    which = "" if len(rows) == len(table) else f", the {len(table)} worst of {len(rows)}"
    return Chart(
        "classes",
        f"Accuracy of each class{which}",
        "int8 on the test examples, the worst class first.",
        table,
        spec,
        rows_height(len(table)),
    )


def worst_confusions(confusion: Sequence[Sequence[int]], classes: Sequence[str], count: int = 8) -> pd.DataFrame:
    """The wrong cells with most examples."""
    table = confusion_table(confusion, classes)
    wrong = table[(table["true"] != table["chosen"]) & (table["examples"] > 0)]
    return wrong.sort_values(["examples", "share"], ascending=False).head(count).reset_index(drop=True)


def sqnr_chart(errors: pd.DataFrame) -> Chart | None:
    """layer_error.csv: signal over quantisation noise of each layer, all of it and the layer's own."""
    if errors.empty or errors["sqnr_db"].isna().all():
        return None
    table = errors[["index", "op", "name", "sqnr_db", "own_sqnr_db", "saturated_share"]].melt(
        id_vars=["index", "op", "name", "saturated_share"], var_name="noise", value_name="db"
    )
    table["noise"] = table["noise"].map({"sqnr_db": "with what came before", "own_sqnr_db": "the layer's own"})
    tip = hover(
        index="layer", op="op", name="name", noise="noise", db="SQNR in dB|.1f", saturated_share="saturated|.3%"
    )
    spec = {
        "mark": {"type": "line", "point": {"size": 55}, "tooltip": True},
        "encoding": {
            "x": field("index", title="layer", axis={"tickMinStep": 1, "format": "d"}, scale={"nice": False}),
            "y": field("db", title="SQNR in dB", scale={"zero": False}),
            "color": field(
                "noise",
                "N",
                scale=colours({"with what came before": theme.SERIES[0], "the layer's own": theme.SERIES[1]}),
            ),
            "tooltip": tip,
        },
    }
    note = "How far int8 is from float behind every layer: 6 dB are one bit. Where the line drops, that layer hurts."
    return Chart("sqnr", "Signal to quantisation noise of each layer", note, table, spec)


def _tone(is_right: bool, examples: int, share: float) -> str:
    if not examples:
        return "none"
    step = max(number for number, least in enumerate(_STEPS) if share >= least)
    return f"{'right' if is_right else 'wrong'} {step}"
