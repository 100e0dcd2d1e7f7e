"""Points -> the paper's kinds of drawings.

bars     the measure of every level, each seed a dot, the mean with its standard error
pareto   accuracy against size, peak memory and MACs, a line for each level of the first factor
peak     precise and imprecise peak memory while pruning goes on
start    training loss and change of the masks over the steps
heat     the measure over one or two factors, N/A where the budgets were not met
layers   what every layer needs before and after pruning
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from stages.report.charts.training import pruning_charts
from stages.report.charts.vocabulary import Spec, colours, field, hover, rows_height
from stages.report.page import theme
from stages.report.page.chart import Chart
from stages.tools.studies.points import Points, artifact
from stages.tools.studies.show import ChartKind, ShowConfig
from stages.tools.studies.statistics import cells, mean_of
from stages.tools.studies.table import title

_COSTS = {"size_bytes": "size", "peak_bytes": "peak memory", "macs": "MACs"}
_LAYERS = ("pruning_widths", "pruning_memory_bytes", "pruning_macs", "pruning_size_bytes")


def study_charts(points: Points, show: ShowConfig) -> list[Chart]:
    """Those of its kinds that there is something to draw for."""
    if points.done.empty:
        return []
    makers = {"bars": _bars, "pareto": _pareto, "peak": _peak, "start": _start, "heat": _heat, "layers": _layers}
    kinds: tuple[ChartKind, ...] = show.charts
    return [chart for kind in kinds for chart in makers[kind](points, show.measure) if not chart.data.empty]


def _label(points: Points, row: pd.Series) -> str:
    return ", ".join(str(row[factor]) for factor in points.identity)


def _axis(measure: str) -> Spec:
    return {"format": ".1%"} if "accuracy" in measure else {"format": "~s"}


def _means(points: Points, measure: str) -> pd.DataFrame:
    """Mean and standard error of every cell; of one seed the bar is a point."""
    found = []
    for levels, rows in cells(points):
        mean = mean_of(list(rows[measure])) if measure in rows else None
        if mean is not None:
            error = mean.error or 0.0
            low, high = mean.value - error, mean.value + error
            label = ", ".join(str(level) for level in levels.values())
            found.append({**levels, "label": label, "mean": mean.value, "low": low, "high": high, "n": mean.n})
    return pd.DataFrame(found)


def _bars(points: Points, measure: str) -> Iterator[Chart]:
    means = _means(points, measure)
    if means.empty:
        return
    done = points.done.dropna(subset=[measure])
    each = pd.DataFrame({"label": [_label(points, row) for _, row in done.iterrows()], "value": done[measure]})
    data = pd.concat([means.assign(row="mean"), each.assign(row="seed", seed=done["seed"])], ignore_index=True)
    y = field("label", "N", sort=None, axis={"ticks": False, "domain": False, "labelLimit": 240})
    axis = _axis(measure)
    x = field("mean", title=title(measure), scale={"zero": False, "padding": 20}, axis=axis)
    number = ".2%" if "accuracy" in measure else ",.4~g"
    tip = hover(label="levels", mean=f"mean|{number}", low=f"- standard error|{number}", high=f"+|{number}", n="n|d")
    colour = {"value": theme.SERIES[0]}
    spec = {
        "layer": [
            {
                "transform": [{"filter": {"field": "row", "equal": "seed"}}],
                "mark": {"type": "point", "size": 40},
                "encoding": {"y": y, "x": {**x, "field": "value"}, "color": {"value": theme.BEFORE}},
            },
            {
                "transform": [{"filter": {"field": "row", "equal": "mean"}}],
                "mark": {"type": "rule", "strokeWidth": 3},
                "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
            },
            {
                "transform": [{"filter": {"field": "row", "equal": "mean"}}],
                "mark": {"type": "point", "filled": True, "size": 90},
                "encoding": {"y": y, "x": x, "color": colour, "tooltip": tip},
            },
        ]
    }
    note = "Filled: mean of the seeds with its standard error. Rings: the seeds."
    yield Chart(f"bars_{measure}", f"{title(measure)} of every level", note, data, spec, rows_height(len(means), 30))


def _pareto(points: Points, measure: str) -> Iterator[Chart]:
    first = points.factors[0]
    series = _series(points, first)
    for column, name in _COSTS.items():
        means = _means(points, measure)
        if means.empty or column not in points.done:
            continue
        costs = [mean_of(list(rows[column])) for levels, rows in cells(points) if mean_of(list(rows[measure]))]
        means["cost"] = [cost.value if cost else None for cost in costs]
        scale = {"zero": False, "padding": 14}
        x = field("cost", title=title(column), scale=scale, axis={"format": "~s", "tickCount": 8})
        y = field("mean", title=title(measure), scale=scale, axis=_axis(measure))
        colour = field(first, "N", scale=colours(series))
        tip = hover(label="levels", cost=f"{name}|,.0f", mean="mean|.2%", low="- standard error|.2%", n="seeds|d")
        spec = {
            "layer": [
                {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": colour, "order": field("cost")}},
                {
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 70},
                    "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip},
                },
            ]
        }
        note = "Means over the seeds; bars: their standard error. Up and to the left is better."
        yield Chart(f"pareto_{column}", f"{title(measure)} against {name}", note, means, spec, 320)


def _trajectories(points: Points) -> pd.DataFrame:
    """trajectory.csv of the first seed of every cell."""
    found = []
    for levels, rows in cells(points):
        file = artifact(rows["folder"].iloc[0], "prune", "trajectory.csv")
        if file is not None:
            told = pd.read_csv(file)
            found.append(told.assign(label=", ".join(str(level) for level in levels.values())))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _peak(points: Points, measure: str) -> Iterator[Chart]:
    steps = _trajectories(points)
    if steps.empty:
        return
    data = steps.melt(
        id_vars=["label", "step"], value_vars=["peak_bytes", "peak_bytes_imprecise"], value_name="bytes"
    ).assign(kind=lambda table: table["variable"].map({"peak_bytes": "precise", "peak_bytes_imprecise": "imprecise"}))
    budget = points.done.get("peak_bytes_budget", pd.Series(dtype=float)).dropna()
    x = field("step", title="training step", scale={"nice": False})
    line = {
        "x": x,
        "y": field("bytes", title="peak memory in bytes", axis={"format": "~s"}),
        "color": field("label", "N", scale=colours(_series_of(list(dict.fromkeys(data["label"]))))),
        "strokeDash": field("kind", "N", scale={"domain": ["precise", "imprecise"], "range": [[1, 0], [5, 3]]}),
        "tooltip": hover(label="objective", kind="calculation", step="step|,d", bytes="bytes|,d"),
    }
    layers: list[Spec] = [{"mark": {"type": "line"}, "encoding": line}]
    if len(budget):
        rule = {"y": {"datum": float(budget.iloc[0]), "type": "quantitative"}}
        layers.append({"mark": {"type": "rule", "color": theme.BAD, "strokeWidth": 1.5}, "encoding": rule})
    note = "Solid: the true peak of the best order. Dashed: the imprecise one. Line across: the budget. First seeds."
    columns = ["label", "kind", "step", "bytes"]
    yield Chart("peak", "Peak memory while pruning", note, data[columns], {"layer": layers}, 320, is_wide=True)


def _start(points: Points, measure: str) -> Iterator[Chart]:
    steps = _trajectories(points)
    if steps.empty:
        return
    drawn = {
        "train_loss": ("start_loss", "Training loss", "cross-entropy", {}),
        "masks_changed": ("start_masks", "Channels masked or unmasked per update", "share", {"format": "%"}),
    }
    for column, (name, words, unit, axis) in drawn.items():
        data = steps[["label", "step", column]].dropna()
        spec = {
            "mark": {"type": "line", "point": {"size": 25}},
            "encoding": {
                "x": field("step", title="training step", scale={"nice": False}),
                "y": field(column, title=unit, axis=axis),
                "color": field("label", "N", scale=colours(_series_of(list(dict.fromkeys(data["label"]))))),
                "tooltip": hover(label="start", step="step|,d", **{column: f"{unit}|.4f"}),
            },
        }
        note = "Behind every update of the widths, and every epoch of the small network; first seeds."
        yield Chart(name, words, note, data, spec, 260)


def _heat(points: Points, measure: str) -> Iterator[Chart]:
    """Two factors span the map; of one, each seed is a row below the mean."""
    done = points.done.dropna(subset=[measure])
    down, across = ("seed", points.factors[0]) if len(points.factors) == 1 else points.factors[:2]
    fits = done["fits"].astype(bool) if "fits" in done else pd.Series(True, index=done.index)
    value = done[measure].astype(float).where(fits)
    data = pd.DataFrame({"down": done[down].astype(str), "across": done[across].astype(str), "value": value})
    if down == "seed":
        data["down"] = "seed " + data["down"].str.replace(".0", "", regex=False)
        means = data.groupby("across", sort=False)["value"].agg(lambda each: each.mean(skipna=False))
        data = pd.concat([pd.DataFrame({"down": "mean", "across": means.index, "value": means.values}), data])
    else:
        data = (
            data.groupby(["down", "across"], sort=False)["value"]
            .agg(lambda each: each.mean(skipna=False))
            .reset_index()
        )
    low, high = data["value"].min(), data["value"].max()
    data["strong"] = data["value"] >= low + (high - low) / 2
    data["missed"] = data["value"].isna()
    share = "accuracy" in measure
    data["text"] = [
        "N/A" if pd.isna(each) else f"{100 * each:.2f}" if share else f"{each:.4g}" for each in data["value"]
    ]
    columns, lines = list(dict.fromkeys(data["across"])), list(dict.fromkeys(data["down"]))
    x = field("across", "O", title=across, scale={"domain": columns}, axis={"labelAngle": 0})
    y = field("down", "O", title=down, scale={"domain": lines})
    on_strong = {"condition": {"test": {"field": "strong", "equal": True}, "value": theme.ON_STRONG}}
    missed = {"test": {"field": "missed", "equal": True}, "value": theme.EMPTY}
    colour = field("value", scale={"type": "quantize", "range": list(theme.RIGHT)}, legend=None, condition=missed)
    tip = hover(down=down, across=across, text=title(measure))
    spec = {
        "layer": [
            {
                "mark": {"type": "rect", "invalid": None},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip},
            },
            {
                "mark": {"type": "text", "fontSize": 12},
                "encoding": {
                    "x": x,
                    "y": y,
                    "text": field("text", "N"),
                    "color": {**on_strong, "value": theme.ON_PALE},
                },
            },
        ]
    }
    note = "Darker is better. N/A: the budgets were not met by the end of the training, with at least one seed."
    yield Chart(
        "heat",
        f"{title(measure)} over {' and '.join(points.factors[:2])}",
        note,
        data,
        spec,
        60 + 46 * len(lines),
        True,
    )


def _layers(points: Points, measure: str) -> Iterator[Chart]:
    for number, (levels, rows) in enumerate(cells(points)):
        folder = rows["folder"].iloc[0]
        layers, steps = artifact(folder, "prune", "layers.csv"), artifact(folder, "prune", "trajectory.csv")
        if layers is None or steps is None:
            continue
        whose = ", ".join(str(level) for level in levels.values())
        for chart in pruning_charts(pd.read_csv(steps), pd.read_csv(layers), {}):
            if chart.name in _LAYERS:
                name = f"{chart.name}_{number}"
                words = f"{whose}: {chart.title[0].lower()}{chart.title[1:]}"
                yield Chart(name, words, chart.note, chart.data, chart.spec, chart.height)


def _series(points: Points, factor: str) -> dict[str, str]:
    return _series_of([str(level) for level in dict.fromkeys(points.rows[factor])])


def _series_of(names: list[str]) -> dict[str, str]:
    return {name: theme.SERIES[at % len(theme.SERIES)] for at, name in enumerate(names)}
