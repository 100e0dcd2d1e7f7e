"""Every chart: its marks are its data, its files are there, and nothing that it shows can act."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from stages.prune.signal.layer_table import LayerRow
from stages.prune.trajectory import FIGURES
from stages.report.charts.device import MOST_BARS, best_known, layer_chart
from stages.report.charts.memory import bottleneck, memory_chart
from stages.report.charts.network import (
    MOST_CLASSES,
    budget_chart,
    class_chart,
    confusion_chart,
    confusion_table,
    worst_confusions,
)
from stages.report.charts.pareto import front
from stages.report.charts.power import downsampled, power_chart
from stages.report.charts.training import pruning_charts
from stages.report.page import theme
from stages.report.page.chart import PNG_SCALE, Chart, csv_text, records
from stages.report.page.text import visible
from tests.stages.report.report_inputs import TWIN, Network, layer_rows, make_report, memory, pruned_rows, trajectory

SVG = "{http://www.w3.org/2000/svg}"


def marks(chart: Chart, kind: str) -> list[ElementTree.Element]:
    """The shapes of one kind of mark (rect, symbol, text, ...) in the picture."""
    root = ElementTree.fromstring(chart.svg)
    groups = [each for each in root.iter(f"{SVG}g") if f"mark-{kind} role-mark" in each.get("class", "")]
    return [shape for group in groups for shape in group if shape.tag in (f"{SVG}path", f"{SVG}text")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return make_report(tmp_path_factory.mktemp("report") / "r")


def test_every_chart_is_there_as_svg_png_and_csv(report):
    names = {path.stem for path in report.figures.iterdir()}
    assert {path.name for path in report.figures.iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")
    }
    wanted = {"budgets", "confusion", "classes", "sqnr", "memory_classic", "history", "pruning_resources"}
    wanted |= {"pruning_widths", "pruning_memory_bytes", "pruning_macs", "pruning_size_bytes", "pruning_losses"}
    wanted |= {f"{kind}_{board}" for kind in ("layers", "power") for board in (TWIN, "nucleo_h743zi2")}
    assert wanted <= names
    for name in names:
        drawn = ElementTree.parse(report.figures / f"{name}.svg").getroot()
        with Image.open(report.figures / f"{name}.png") as picture:
            assert picture.width == pytest.approx(PNG_SCALE * float(drawn.attrib["width"]), abs=1)
            assert picture.convert("L").getextrema() == pytest.approx((0, 255), abs=90)  # letters on white
        rows = list(csv.reader((report.figures / f"{name}.csv").read_text().splitlines()))
        assert len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows)


def test_a_bar_is_as_long_as_its_share_of_the_budget_and_an_exceeded_one_is_red():
    table = pd.DataFrame({"resource": ["a", "b", "c"], "used": [50, 130, 9], "budget": [100, 100, None], "unit": "B"})
    chart = budget_chart(table)
    assert chart.data["state"].tolist() == ["holds", "exceeded"]
    bars = marks(chart, "rect")
    assert [bar.get("fill") for bar in bars] == [theme.GOOD, theme.BAD]
    assert budget_chart(table.assign(budget=None)) is None


def test_the_matrix_holds_every_count_and_tells_right_from_wrong():
    counts = [[8, 0, 2], [0, 9, 1], [0, 0, 0]]
    chart = confusion_chart(counts, ["a", "b", "c"])
    assert len(marks(chart, "rect")) == 9 and sorted(each.text for each in marks(chart, "text")) == ["1", "2", "8", "9"]
    table = chart.data.set_index(["true", "chosen"])
    assert table.loc[("a", "a"), "tone"] == "right 3" and table.loc[("a", "c"), "tone"] == "wrong 1"
    assert table.loc[("c", "c"), "tone"] == "none"
    assert confusion_table(counts, ["a", "b", "c"])["examples"].sum() == 20
    assert confusion_chart([[1] * 60] * 60, [str(n) for n in range(60)]) is None


def test_classes_come_worst_first_and_confusions_by_their_number():
    counts = [[8, 0, 2], [1, 9, 0], [0, 0, 0]]
    assert class_chart(counts, ["a", "b", "c"]).data["class"].tolist() == ["a", "b"]  # none of c was tested
    worst = worst_confusions(counts, ["a", "b", "c"])
    assert worst[["true", "chosen", "examples"]].values.tolist() == [["a", "c", 2], ["b", "a", 1]]
    many = class_chart(np.eye(100, dtype=int).tolist(), [str(n) for n in range(100)])
    assert len(many.data) == MOST_CLASSES and "the 40 worst of 100" in many.title


def test_blocks_lie_where_the_record_says_and_the_bottleneck_is_marked():
    record = memory(["one", "two", "three"], 1000)
    chart = memory_chart("memory_classic", "t", record)
    assert bottleneck(record) == 1
    assert [each.text for each in marks(chart, "text")] == ["bottleneck"]
    assert len(marks(chart, "rect")) == 1 + 3  # the bottleneck's column, and the blocks
    blocks = chart.data[chart.data["row"] == "tensor"]
    assert (blocks["top"] - blocks["bottom"]).tolist() == [500, 1000, 500]
    assert "Arena 1,000 B (minimal)" in chart.note and "op 1, CONV_2D two, 1,000 B" in chart.note


def test_ops_are_drawn_by_the_best_figure_that_all_of_them_have():
    layers = pd.DataFrame(layer_rows(TWIN, ["a", "b"])).replace("", None)
    assert best_known(layers) == "cycles_modelled"
    assert best_known(layers.assign(cycles=[1, 2])) == "cycles"
    assert best_known(layers.assign(cycles=[1, None], cycles_modelled=None)) == "instructions"
    assert best_known(layers.iloc[:0]) is None and layer_chart("b", "virtual", layers.iloc[:0]) is None
    chart = layer_chart("b", "virtual", layers)
    assert chart.data["share"].sum() == pytest.approx(1) and len(marks(chart, "rect")) == 2
    many = layer_chart("b", "virtual", pd.DataFrame(layer_rows(TWIN, [str(n) for n in range(200)])).replace("", None))
    assert len(many.data) == MOST_BARS and many.data["share"].max() > 0.49


@pytest.mark.parametrize("at", [0, 1, 499_999, 777_777, 999_999])
def test_a_spike_of_one_sample_survives_down_sampling(at):
    times, values = np.arange(1_000_000) * 0.01, np.full(1_000_000, 0.5)
    values[at] = 9.0
    bins = downsampled(times, values, 600)
    assert len(bins) <= 600 and bins["high"].max() == 9.0 and bins["low"].min() == 0.5
    assert 0 <= times[at] - bins["ms"][bins["high"].idxmax()] <= 10_000 / 600


def test_bins_are_what_a_loop_finds():
    draw = np.random.default_rng(0)
    times, values = draw.uniform(-3, 5, 1003), draw.normal(size=1003)
    bins = downsampled(times, values, 10)
    assert bins["samples"].sum() == 1003
    for row, end in zip(bins.itertuples(), [*bins["ms"][1:], np.inf], strict=True):
        part = values[(times >= row.ms) & (times < end)]
        assert (row.low, row.high, row.samples) == (part.min(), part.max(), len(part))
        assert row.mean == pytest.approx(part.mean())


def test_power_lays_the_windows_over_each_other_and_marks_the_inferences():
    trace = {"source": np.array("simulated"), "power_w": np.full((2, 100), 0.5), "dt_s": np.full(2, 1e-3)}
    trace |= {"t0_s": np.array([0.0, 5.0]), "edges_s": np.array([[0.02, 0.08], [5.02, 5.08]])}
    trace["power_w"][1, 50] = 0.9
    chart = power_chart("b", trace, {"inferences_per_window": 3})
    marked = chart.data[chart.data["row"] == "inference"]
    assert marked[["ms", "end_ms"]].values.tolist() == pytest.approx(np.array([[0, 20], [20, 40], [40, 60]]))
    bins = chart.data[chart.data["row"] == "samples"]
    assert bins["samples"].sum() == 200 and bins["ms"].min() == pytest.approx(-20)
    assert (bins["low"].max(), bins["high"].max()) == (500, 900) and bins["told"][bins["high"].idxmax()]
    assert "no board was measured" in chart.note and len(marks(chart, "rect")) == 3
    assert power_chart("b", {"source": np.array("")}, {}) is None


def test_the_trajectory_begins_with_the_whole_network_and_a_missing_budget_is_named():
    steps, layers = pd.DataFrame(trajectory()).replace("", np.nan), pd.DataFrame(pruned_rows(["stem <a>", "pool"]))
    charts = {chart.name: chart for chart in pruning_charts(steps, layers, {"macs": 6_000_000})}
    table = charts["pruning_resources"].data
    macs = table[table["resource"] == "MACs"]
    assert macs["step"].tolist() == [0, 40, 60] and macs["ratio"].iloc[-1] == 1
    assert {"size (no budget)", "peak memory (no budget)", "peak memory, imprecise"} < set(table["resource"])
    assert len(charts["pruning_losses"].data) == 3 + 2  # a loss that was not computed leaves a gap
    assert "276 before, 80 channels after" in charts["pruning_widths"].note
    untouched = [chart.name for chart in pruning_charts(steps.iloc[:0], layers, {})]
    assert "pruning_resources" not in untouched and "pruning_widths" in untouched


def test_the_inputs_are_those_that_the_prune_step_writes():
    assert set(pruned_rows(["a"])[0]) == set(LayerRow.__dataclass_fields__)
    assert set(trajectory()[0]) - {"step", "update", "objective"} <= set(FIGURES)


HOSTILE = ("</script><b>", "a&b", '"quoted", with comma', "=1+1", "\x1b[31mred", "two\nlines", "{{ 7 * 7 }}", "NA", "'")


def test_hostile_names_are_text_in_svg_and_csv():
    record = memory(HOSTILE, 100)
    chart = memory_chart("memory_classic", HOSTILE[0], record)
    ElementTree.fromstring(chart.svg)
    assert "<b>" not in chart.svg and "\x1b" not in chart.svg + chart.csv
    names = [row["name"] for row in csv.DictReader(io.StringIO(chart.csv)) if row["row"] == "op"]
    assert [name.removeprefix("'") or "'" for name in names] == [visible(name) for name in HOSTILE]
    assert names[3] == "'=1+1"
    assert [row["name"] for row in records(chart.data) if row["row"] == "op"] == [visible(name) for name in HOSTILE]


def test_numbers_are_left_alone_in_csv():
    table = pd.DataFrame({"text": ["-x", "y", None], "number": [-1.5, 2.0, None], "count": [1, -2, 3]})
    assert csv_text(table) == "text,number,count\n'-x,-1.5,1\ny,2.0,-2\n,,3\n"


def test_the_front_is_what_comparing_all_pairs_gives():
    draw = np.random.default_rng(3)
    cost, good = draw.integers(0, 6, 40), draw.integers(0, 6, 40)
    for at, is_front in enumerate(front(cost, good)):
        beaten = any(
            (c <= cost[at] and g > good[at]) or (c < cost[at] and g >= good[at])
            for c, g in zip(cost, good, strict=True)
        )
        assert is_front is not beaten


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("of", [theme.light, theme.dark])
def test_colours_have_the_contrast_of_wcag_aa(of):
    letters = [(theme.INK, theme.SURFACE), (theme.SOFT, theme.SURFACE), (theme.SOFT, theme.GROUND)]
    letters += itertools.product((theme.ACCENT, theme.GOOD, theme.BAD, theme.WARN), (theme.SURFACE, theme.GROUND))
    letters += [(theme.GOOD, theme.GOOD_GROUND), (theme.BAD, theme.BAD_GROUND), (theme.INK, theme.GOOD_GROUND)]
    letters += itertools.product([theme.ON_PALE], (theme.EMPTY, *theme.RIGHT[:2], *theme.WRONG[:2]))
    strong = (*theme.RIGHT[2:], *theme.WRONG[2:], theme.SERIES[0], theme.GOOD, theme.BAD)
    letters += itertools.product([theme.ON_STRONG], strong)
    for one, other in letters:
        assert contrast(of(one), of(other)) >= 4.5, (one, other, contrast(of(one), of(other)))
    for mark in (*theme.SERIES, theme.BEFORE, theme.INK):
        assert contrast(of(mark), of(theme.SURFACE)) >= 3, mark


def test_no_colour_of_a_theme_is_a_part_of_another():
    """They are replaced in the text of a description, one behind the other."""
    assert not set(theme.DARK) & set(theme.DARK.values())
    assert len(set(theme.DARK.values())) == len(theme.DARK)


def test_a_brought_network_has_a_report_without_training(tmp_path):
    made = make_report(tmp_path / "r", replace(Network(), is_brought=True))
    names = {path.stem for path in made.figures.glob("*.svg")}
    assert "memory_classic" in names and not names & {"confusion", "history", "sqnr", "pruning_widths"}
    assert "no test examples, so no accuracy" in made.table.read_text()
    assert next(csv.DictReader(made.summary.read_text().splitlines()))["accuracy_int8"] == ""
