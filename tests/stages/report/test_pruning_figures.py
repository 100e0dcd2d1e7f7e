"""The figures of the pruning run: what they show can be read back from the SVG."""

from __future__ import annotations

import csv
import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stages.nets.config import BudgetConfig
from stages.report.chart import layer_chart
from stages.report.plot import COLOURS, Series, line_plot, pair_bars, ratio_plot
from stages.report.pruning import pruning_figures

SVG = "{http://www.w3.org/2000/svg}"
STEPS = (
    "step,objective,size_bytes,peak_bytes,macs,train_loss,task_loss,masks_changed,peak_bytes_imprecise\n"
    "40,macs,4000,900,800000,2.5,2.4,0.10,900\n60,macs,1500,700,400000,2.0,2.2,0.30,600\n80,none,1000,500,200000,1.5,,0.02,400\n"
)
LAYERS = (
    "index,op,name,channels_before,channels_after,memory_bytes_before,memory_bytes_after,macs_before,macs_after,"
    "size_bytes_before,size_bytes_after\n"
    "0,CONV_2D,stem <a>,16,8,900,500,700000,150000,3000,700\n1,MEAN,mean,16,8,100,50,100,50,0,0\n"
)

PINNED = {
    "all figures": "07e39fa38bdc",
    "without budgets": "baf9dbc6eb09",
    "bars": "db5713961f66",
    "few bars": "9868b7f721e3",
    "ratios": "87e7e89a6a20",
    "lines": "fd1e12e8c57e",
    "below zero": "23cba8702c27",
    "chart": "00513840e8fa",
    "nothing to show": "0f274bc27f1c",
}


def figures(tmp_path: Path, steps: str = STEPS, **budget: str) -> dict[str, str]:
    (tmp_path / "trajectory.csv").write_text(steps)
    (tmp_path / "layers.csv").write_text(LAYERS)
    limits = BudgetConfig(**(budget or {"size_bytes": "1000B", "peak_bytes": "500B", "macs": "200K"}))
    return pruning_figures(tmp_path / "trajectory.csv", tmp_path / "layers.csv", limits)


def lines_of(svg: str) -> list[list[tuple[float, float]]]:
    found = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in found]


def test_every_figure_of_the_paper_is_drawn_and_well_formed(tmp_path):
    found = figures(tmp_path)
    assert set(found) == {
        "pruning_resources", "pruning_losses", "pruning_masks", "pruning_widths", "pruning_memory_bytes",
        "pruning_macs", "pruning_size_bytes",
    }  # fmt: skip
    for svg in found.values():
        ElementTree.fromstring(svg)


def test_resources_end_on_the_line_of_their_budgets_and_the_imprecise_peak_below(tmp_path):
    svg = figures(tmp_path)["pruning_resources"]
    size, peak, imprecise, macs = lines_of(svg)
    level = next(
        float(line.get("y1"))
        for line in ElementTree.fromstring(svg).iter(f"{SVG}line")
        if line.get("stroke-width") == "1.3"
    )
    assert size[-1][1] == peak[-1][1] == macs[-1][1] == level < imprecise[-1][1]
    assert size[0][1] == macs[0][1] < peak[0][1]  # four budgets above one and eight tenths; y points down
    assert [x for x, _ in size] == [70.0, 350.0, 630.0]


def test_the_start_belongs_to_the_resources_and_the_epochs_of_the_small_network_to_the_losses(tmp_path):
    header, *rows = STEPS.splitlines()
    start, epoch = "0,none,8000,1800,1600000,,,,1800", "500,none,1000,500,200000,0.9,,,400"
    found = figures(tmp_path, steps="\n".join([header, start, *rows, epoch]) + "\n")
    assert [len(line) for line in lines_of(found["pruning_resources"])] == [4, 4, 4, 4]
    assert [len(line) for line in lines_of(found["pruning_losses"])] == [4, 2]
    assert [len(line) for line in lines_of(found["pruning_masks"])] == [3]


def test_a_loss_that_was_not_computed_leaves_a_gap(tmp_path):
    train, task = lines_of(figures(tmp_path)["pruning_losses"])
    assert (len(train), len(task)) == (3, 2)


def test_without_a_trajectory_only_the_layers_are_drawn(tmp_path):
    found = figures(tmp_path, steps=STEPS.splitlines()[0] + "\n")
    assert "pruning_resources" not in found and "pruning_masks" not in found and "pruning_widths" in found


def test_a_resource_without_a_budget_is_named_so(tmp_path):
    assert "size (no budget)" in figures(tmp_path, macs="200K")["pruning_resources"]


def test_bars_are_as_high_as_their_values_and_names_are_escaped(tmp_path):
    svg = figures(tmp_path)["pruning_widths"]
    assert "stem &lt;a&gt;" in svg and "mean" not in svg  # a layer without weights has no width of its own
    heights = [float(rect.get("height")) for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")]
    assert heights[:2] == [240.0, 120.0]


@pytest.mark.parametrize("high, expected", [(8, 8), (9, 8), (35, 30), (276, 250), (1, 1), (7_300_000, 6_000_000)])
def test_the_grid_has_round_values_up_to_the_largest(high, expected):
    svg = pair_bars("t", "u", ["a"], [high], [high])
    ticks = [float(text.replace(",", "")) for text in re.findall(r'text-anchor="end" fill="#6b7785">([\d,.e-]+)<', svg)]
    assert 3 <= len(ticks) <= 8 and max(ticks) <= high
    assert expected == max(ticks)


def test_ratios_have_a_logarithmic_scale_and_other_lines_a_straight_one():
    powers, steps = [(0, 1.0), (1, 10.0), (2, 100.0)], [(0, 0.0), (1, 50.0), (2, 100.0)]
    for draw, values in ((ratio_plot, powers), (line_plot, steps)):
        (points,) = lines_of(draw("t", "x", "y", [Series("a", values, COLOURS[0])]))
        assert points[0][1] - points[1][1] == pytest.approx(points[1][1] - points[2][1])
        assert (points[0][1], points[2][1]) == (294.0, 54.0)


def test_one_point_or_equal_values_are_drawn_too():
    assert len(lines_of(line_plot("t", "x", "y", [Series("a", [(3, 2.0)], COLOURS[0])]))[0]) == 1
    assert line_plot("t", "x", "y", []) == "" and pair_bars("t", "u", [], [], []) == ""


def test_the_look_of_plots_is_pinned(tmp_path):
    """Many bars, long names, large and small values: look at the picture before the digest is changed."""
    names = [f"block_{i}/a_name_that_is_longer_than_its_place" if i % 3 else f"b{i}" for i in range(120)]
    lines = [
        Series("falls", [(0, 4000.0), (7, 80.0), (9, 0.03)], COLOURS[0]),
        Series("rises", [(2, 0.5), (9, 1.5)], COLOURS[1], dashed=True),
    ]
    drawn = {
        "all figures": "".join(figures(tmp_path).values()),
        "without budgets": "".join(figures(tmp_path, macs="200K").values()),
        "bars": pair_bars("t", "u", names, range(1, 121), range(120)),
        "few bars": pair_bars("t", "u", names[:9], range(9), range(9)),
        "ratios": ratio_plot("t", "x", "y", lines),
        "lines": line_plot("t", "x", "y", lines),
        "below zero": line_plot("t", "x", "y", [Series("a", [(1, -3.0), (2, 5.0)], COLOURS[2])]),
        "chart": layer_chart(
            "t", [{"index": str(i), "op": "ADD", "name": n, "c": str(i)} for i, n in enumerate(names)], "c"
        ),
        "nothing to show": layer_chart("t", [{"index": "0", "op": "ADD", "name": "a", "c": "0"}], "c"),
    }
    assert {name: hashlib.sha256(svg.encode()).hexdigest()[:12] for name, svg in drawn.items()} == PINNED


def test_the_rows_are_those_that_the_prune_step_writes():
    from stages.prune.layer_table import LayerRow
    from stages.prune.trajectory import FIGURES

    assert set(next(csv.reader([LAYERS.splitlines()[0]]))) == set(LayerRow.__dataclass_fields__)
    assert set(STEPS.splitlines()[0].split(",")) - {"step", "objective"} <= set(FIGURES)
