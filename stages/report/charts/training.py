"""Charts of training and pruning: how the network fell to its budgets, what became of its layers, what it learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from stages.report.charts.vocabulary import ROW_AXIS, colours, field, hover, labelled, rows_height
from stages.report.page import theme
from stages.report.page.chart import Chart

_RESOURCES = {"size_bytes": "size", "peak_bytes": "peak memory", "macs": "MACs"}
_PER_LAYER = {
    "channels": ("Channels of each layer, before and after", "channels"),
    "memory_bytes": ("Bytes alive while each op runs, before and after", "bytes"),
    "macs": ("Multiply-accumulates of each op, before and after", "MACs"),
    "size_bytes": ("Weights and biases of each op, before and after", "bytes"),
}
_STEPS = {"prune": theme.SERIES[0], "qat": theme.SERIES[1]}


def pruning_charts(trajectory: pd.DataFrame, layers: pd.DataFrame, limits: Mapping[str, int]) -> Iterator[Chart]:
    """From trajectory.csv and layers.csv of the prune step; a network that was never updated has no trajectory."""
    updated = trajectory[trajectory["masks_changed"].notna()]
    if not updated.empty:
        yield _resources(pd.concat([trajectory[trajectory["step"] == 0], updated]), limits)
    if not layers.empty:
        yield _before_and_after(layers[layers["size_bytes_before"] > 0], "channels", "pruning_widths")
        for column in ("memory_bytes", "macs", "size_bytes"):
            yield _before_and_after(layers, column, f"pruning_{column}")
    losses = trajectory.melt(id_vars=["step"], value_vars=["train_loss", "task_loss"], value_name="loss").dropna()
    if not losses.empty:
        yield _losses(losses)
    if not updated.empty:
        yield _masks(updated)


def history_chart(history: Mapping[str, pd.DataFrame]) -> Chart | None:
    """history.csv of each training step: validation accuracy behind every epoch."""
    parts = [table.assign(step=step) for step, table in history.items() if not table.empty]
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    table["epochs"] = range(1, len(table) + 1)
    tip = hover(step="step", epoch="epoch|d", validation_accuracy="validation accuracy|.2%", loss="training loss|.4f")
    spec = {
        "mark": {"type": "line", "point": {"size": 55}},
        "encoding": {
            "x": field(
                "epochs",
                title="epoch, one step behind the other",
                axis={"tickMinStep": 1, "format": "d"},
                scale={"nice": False},
            ),
            "y": field("validation_accuracy", title="validation accuracy", scale={"zero": False}, axis={"format": "%"}),
            "color": field("step", "N", scale=colours(_STEPS)),
            "tooltip": tip,
        },
    }
    last = f"{100 * table['validation_accuracy'].iloc[-1]:.2f} %"
    note = f"Behind each of {len(table)} epochs, on examples that are not trained on; {last} at the end."
    return Chart("history", "Validation accuracy per epoch", note, table, spec)


def _resources(steps: pd.DataFrame, limits: Mapping[str, int]) -> Chart:
    """Each resource over its budget; without a budget over what the network needs at the end."""
    parts = []
    for column, name in _RESOURCES.items():
        limit = limits.get(column) or float(steps[column].iloc[-1])
        words = name if column in limits else f"{name} (no budget)"
        parts.append(_over_budget(steps, column, words, limit))
        if column == "peak_bytes" and (steps["peak_bytes_imprecise"] < steps[column]).any():
            parts.append(_over_budget(steps, "peak_bytes_imprecise", f"{name}, imprecise", limit))
    table = pd.concat(parts, ignore_index=True)
    line = {
        "x": field("step", title="training step", scale={"nice": False}),
        "y": field(
            "ratio",
            title="used / budget",
            scale={"type": "log", "nice": False},
            axis={"format": ".2~f", "tickCount": 6},
        ),
        "color": field("resource", "N"),
        "tooltip": hover(
            resource="resource", step="step|,d", used="used|,.0f", budget="budget|,.0f", ratio="used / budget|.3f"
        ),
    }
    spec = {
        "layer": [
            {"mark": {"type": "line", "point": {"size": 40}}, "encoding": line},
            {"mark": {"type": "rule", "strokeDash": [5, 3]}, "encoding": {"y": {"datum": 1}}},
        ]
    }
    return Chart(
        "pruning_resources",
        "Pruning: resources over their budgets",
        "After every update of the widths; at the dashed line the budget is met.",
        table,
        spec,
    )


def _over_budget(steps: pd.DataFrame, column: str, words: str, limit: float) -> pd.DataFrame:
    used = steps[column].astype(float)
    return pd.DataFrame(
        {"step": steps["step"], "resource": words, "used": used, "budget": limit, "ratio": used / limit}
    )


def _before_and_after(layers: pd.DataFrame, column: str, name: str) -> Chart:
    title, unit = _PER_LAYER[column]
    table = layers[["index", "op", "name", f"{column}_before", f"{column}_after"]].rename(
        columns={f"{column}_before": "before", f"{column}_after": "after"}
    )
    table["layer"] = labelled(table["index"], table["name"])
    y = field("layer", "N", sort=None, axis=ROW_AXIS)
    tip = hover(layer="layer", op="op", before="before|,d", after="after|,d")
    axis = {"format": "~s", "tickCount": 6}

    scale = colours({"before": theme.BEFORE, "after": theme.SERIES[0]})

    def bars(when: str, band: float) -> dict[str, object]:
        colour = {"datum": when, "type": "nominal", "scale": scale, "title": None}
        x = field(when, title=unit, axis=axis)
        return {
            "mark": {"type": "bar", "height": {"band": band}},
            "encoding": {"y": y, "x": x, "tooltip": tip, "color": colour},
        }

    spec = {"layer": [bars("before", 0.86), bars("after", 0.5)]}
    total = table[["before", "after"]].sum()
    worst = table[["before", "after"]].max()
    old, new = (total if column in ("macs", "size_bytes") else worst)[["before", "after"]]
    words = "In all" if column in ("macs", "size_bytes") else "At most"
    return Chart(
        name,
        title,
        f"{words} {old:,.0f} before, {new:,.0f} {unit} after pruning.",
        table,
        spec,
        rows_height(len(table), 20),
    )


def _losses(losses: pd.DataFrame) -> Chart:
    losses = losses.assign(
        kind=losses["variable"].map(
            {"train_loss": "training loss (smoothed labels)", "task_loss": "P_TSK (validation)"}
        )
    )
    table = losses[["step", "kind", "loss"]].reset_index(drop=True)
    spec = {
        "mark": {"type": "line", "point": {"size": 30}},
        "encoding": {
            "x": field("step", title="training step", scale={"nice": False}),
            "y": field("loss", title="cross-entropy"),
            "color": field("kind", "N"),
            "tooltip": hover(kind="loss", step="step|,d", loss="cross-entropy|.4f"),
        },
    }
    return Chart(
        "pruning_losses", "Pruning: losses", "The task loss steers the widths until the budgets hold.", table, spec
    )


def _masks(updated: pd.DataFrame) -> Chart:
    table = updated[["step", "update", "objective", "masks_changed"]].reset_index(drop=True)
    spec = {
        "mark": {"type": "bar", "width": 8},
        "encoding": {
            "x": field("step", title="training step", scale={"nice": False, "padding": 10}),
            "y": field("masks_changed", title="share of the channels", axis={"format": "%"}),
            "tooltip": hover(update="update|d", step="step|,d", objective="objective", masks_changed="changed|.2%"),
        },
    }
    return Chart(
        "pruning_masks",
        "Pruning: channels masked or unmasked per update",
        "What each update of the widths changed.",
        table,
        spec,
    )
