"""Studies tabulated: means and errors by hand, what is significant, every kind of chart, the project's own entries."""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path

import pytest

from pipeline.config import load_project
from pipeline.engine.assembly import Workshop
from pipeline.errors import ConfigError
from pipeline.sweeps.study import study_config, study_spec
from stages.tools.comparison.tests_of_difference import anova_p, student_p, welch_p
from stages.tools.studies.charts import study_charts
from stages.tools.studies.points import tidy
from stages.tools.studies.show import show_config
from stages.tools.studies.study import study

ROOT = Path(__file__).resolve().parents[4]
ABOUT = {"name": "s", "title": "A title", "question": "A question?", "quick": False}
SHOW = {"columns": ["validation_accuracy", "size_bytes", "fits"], "charts": ["heat"]}


def point(folder: Path, levels: dict[str, str], seed: int, accuracy: float, fits: bool = True, size: int = 900) -> dict:
    """A training that has ended, with the files that the prune step leaves."""
    where = folder / "_".join([*levels.values(), str(seed)]) / "prune"
    where.mkdir(parents=True)
    after = {"size_bytes": size, "peak_bytes": 3000, "peak_bytes_imprecise": 2500, "macs": 10 * size}
    told = {
        **{"validation_accuracy": accuracy, "test_accuracy": accuracy - 0.01, "before": after, "after": after},
        **{"budget": {"peak_bytes": 3100}, "fits": fits, "widths": [4, 5], "updates": 7, "macs_trained_relative": 0.5},
    }
    (where / "metrics.json").write_text(json.dumps(told))
    (where / "trajectory.csv").write_text(
        "step,update,objective,width_a,size_bytes,peak_bytes,macs,train_loss,task_loss,resource_loss,masks_changed,"
        "peak_bytes_imprecise,task_pull,resource_pull\n"
        "0,0,none,8,2000,4000,90,,,1,,3000,,0\n20,1,macs,6,1500,3500,50,1.5,1.6,0.5,0.2,2800,0,0.1\n"
    )
    (where / "layers.csv").write_text(
        "index,op,name,channels_before,channels_after,memory_bytes_before,memory_bytes_after,macs_before,macs_after,"
        "size_bytes_before,size_bytes_after\n0,CONV_2D,a,8,6,400,300,90,50,200,150\n"
    )
    found = {"experiment": "e", "levels": levels, "seed": seed, "settings": {}, "state": "done", "error": None}
    return {**found, "folder": where.parent, "rows": ()}


def two_methods(folder: Path) -> dict[str, list[float]]:
    return {"a": [0.90, 0.91, 0.92], "b": [0.95, 0.96, 0.955]}


def test_the_table_has_means_with_standard_errors_and_the_papers_figures_beside(tmp_path: Path) -> None:
    values = two_methods(tmp_path)
    points = [point(tmp_path, {"method": m}, s, each) for m in values for s, each in enumerate(values[m])]
    points.append(point(tmp_path, {"method": "c"}, 0, 0.99, fits=False))
    paper = {"about": "table 9", "rows": [{"method": "b", "accuracy": 71.5}]}
    answer = study(ABOUT, {**SHOW, "baseline": {"method": "a"}, "paper": paper}, points, tmp_path)
    *rows, over = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert (over["method"], float(over["validation_accuracy"])) == ("c", 0.99)
    for row in rows:
        own = values[row["method"]]
        assert float(row["validation_accuracy"]) == pytest.approx(statistics.fmean(own))
        assert float(row["validation_accuracy_standard_error"]) == pytest.approx(statistics.stdev(own) / math.sqrt(3))
    assert answer.record["columns"] == ["method", "n", "validation accuracy %", "size B", "fits", "paper: accuracy"]
    assert answer.record["lines"][1] == ["b", "3", "95.50 ± 0.29", "900 ± 0", "3 of 3", "71.5"]
    p = welch_p(0.91, 0.01, 3, 0.955, 0.005, 3)
    assert answer.record["findings"][0] == (
        "b: +4.50 points against a in validation accuracy; significant "
        f"(Welch's test, 3 and 3 seeds, p = {p:.2g} after Holm's correction)."
    )
    assert answer.record["findings"][1:] == [
        "1 points over their budgets are left out of the comparison.",
        "The paper: table 9",
    ]
    heat = list(csv.DictReader((tmp_path / "figures" / "heat.csv").read_text().splitlines()))
    assert [(row["across"], row["text"]) for row in heat if row["down"] == "mean"] == [
        ("a", "91.00"),
        ("b", "95.50"),
        ("c", "N/A"),
    ]
    assert [row["text"] for row in heat if row["down"] == "seed 0"] == ["90.00", "95.00", "N/A"]
    assert "A question?" in (tmp_path / "study.html").read_text()


def test_every_kind_of_chart_is_a_drawing_of_the_points(tmp_path: Path) -> None:
    values = two_methods(tmp_path)
    points = [point(tmp_path, {"method": m}, s, each) for m in values for s, each in enumerate(values[m])]
    kinds = ["bars", "pareto", "peak", "start", "heat", "layers"]
    charts = {each.name: each for each in study_charts(tidy(points), show_config("s", {**SHOW, "charts": kinds}))}
    assert charts.keys() == {
        *("bars_validation_accuracy", "pareto_size_bytes", "pareto_peak_bytes", "pareto_macs", "peak", "heat"),
        *("start_loss", "start_masks"),
        *(f"pruning_{what}_{n}" for what in ("widths", "memory_bytes", "macs", "size_bytes") for n in (0, 1)),
    }
    assert charts["peak"].data["bytes"].tolist() == [4000, 3500, 4000, 3500, 3000, 2800, 3000, 2800]
    assert charts["pareto_macs"].data["mean"].tolist() == pytest.approx([0.91, 0.955])
    assert all("</g>" in chart.svg for name, chart in charts.items() if not name.startswith("pruning"))


def test_what_is_no_more_than_chance_is_said_so_and_one_seed_says_nothing(tmp_path: Path) -> None:
    values = {"a": [0.90, 0.94], "b": [0.91, 0.95]}
    points = [point(tmp_path, {"m": m}, s, each) for m in values for s, each in enumerate(values[m])]
    show = {"columns": ["validation_accuracy"]}
    told = study(ABOUT, show, points, tmp_path).record["findings"]
    p = anova_p(list(values.values()))
    assert told == [
        "Over 2 cells validation accuracy differs by +1.00 points between the worst (a) and the best (b); all in all "
        f"the cells differ by no more than chance would give (analysis of variance, p = {p:.2g})."
    ]
    against = study(ABOUT, {**show, "baseline": {"m": "a"}}, points, tmp_path).record["findings"][0]
    assert "b: +1.00 points against a in validation accuracy; not significant" in against
    one = study(ABOUT, show, points[1:], tmp_path).record["findings"][0]
    assert one.startswith("One seed in at least one group: nothing can be said")


def test_points_that_failed_or_have_not_run_are_counted_and_named(tmp_path: Path) -> None:
    rest = {"experiment": "e", "levels": {"m": "b"}, "seed": 0, "settings": {}, "folder": None, "rows": ()}
    failed = {**rest, "state": "failed", "error": "prune: the loss is not finite"}
    points = [point(tmp_path, {"m": "a"}, 0, 0.9), failed, {**rest, "seed": 1, "state": "open", "error": None}]
    answer = study(ABOUT, SHOW, points, tmp_path)
    assert (answer.record["open"], answer.record["failed"], len(answer.record["lines"])) == (1, 1, 1)
    assert "1 failed; the first: prune: the loss is not finite" in answer.text
    assert "1 of 3 points have not run yet." in answer.text
    nothing = study(ABOUT, SHOW, points[1:], tmp_path / "none")
    assert (nothing.record["lines"], "Nothing has ended yet" in nothing.text) == ([], True)


def test_rows_of_boards_are_lines_of_their_own_with_the_spread_of_their_measurements(tmp_path: Path) -> None:
    one = point(tmp_path, {"network": "x"}, 0, 0.9)
    measured = {
        "board": "f7",
        "latency_ms": "84.0",
        "latency_ms_2sigma": "0.02",
        "n": "30",
        "energy_mj": "",
        "source": "hardware",
    }
    points = [{**one, "rows": (measured, {**measured, "board": "h7", "latency_ms": "", "latency_ms_2sigma": ""})}]
    paper = {"about": "", "rows": [{"network": "x", "board": "h7", "latency ms": "38.72 ± 0.01"}]}
    shown = {"columns": ["latency_ms", "energy_mj", "n", "source"], "paper": paper}
    answer = study(ABOUT, shown, points, tmp_path)
    assert answer.record["lines"] == [
        ["x", "f7", "1", "84.000 ± 0.020 (2 sigma)", "–", "30", "hardware", "–"],
        ["x", "h7", "1", "–", "–", "30", "hardware", "38.72 ± 0.01"],
    ]


def test_variance_between_groups_is_judged_as_the_tables_of_f_say() -> None:
    # With two degrees above, the tail of F is (1 + 2 F / below) ** (-below / 2): here F = 13, below = 6.
    assert anova_p([[1, 2, 3], [2, 3, 4], [5, 6, 7]]) == pytest.approx((1 + 26 / 6) ** -3, rel=1e-9)
    a, b = [0.2, 0.5, 0.9], [0.3, 0.6, 0.85]
    pooled = math.sqrt((statistics.variance(a) + statistics.variance(b)) / 2 * 2 / 3)
    t = (statistics.fmean(a) - statistics.fmean(b)) / pooled
    assert anova_p([a, b]) == pytest.approx(student_p(t, 4), rel=1e-9), "of two groups it is Student's test"
    assert anova_p([[1, 1], [1, 1]]) == 1 and anova_p([[1, 1], [2, 2]]) == 0


def test_a_mistake_in_show_is_named() -> None:
    with pytest.raises(ConfigError, match="studies.s.show.charts.0: Input should be 'bars'.*found 'pie'"):
        show_config("s", {"columns": [], "charts": ["pie"]})


@pytest.mark.parametrize("quick", [False, True])
def test_every_study_of_the_project_is_a_valid_question(quick: bool) -> None:
    project = load_project(ROOT / "pipeline.yaml")
    workshop = Workshop(ROOT / "pipeline.yaml", print)
    assert {"loss_ablation", "peak_objective", "uniform_scaling", "start"} <= project.studies.keys()
    assert {"alpha", "eta", "deployment", "layers"} <= project.studies.keys()
    for name in project.studies:
        show = show_config(name, study_config(project, name).show)
        spec = study_spec(project, name, quick=quick)
        points = spec.points()
        assert spec.until is None or spec.until in project.steps
        factors = dict(points[0].levels)
        assert show.baseline.keys() <= factors.keys()
        levels = {(factor, level) for each in points for factor, level in each.levels}
        assert quick or set(show.baseline.items()) <= levels
        for one in {(each.experiment, each.settings): each for each in points}.values():
            workshop.experiment(one.experiment, quick, one.overrides)
        for row in show.paper.rows if show.paper and not quick else ():
            assert {(key, str(value)) for key, value in row.items() if key in factors} <= levels, (name, row)
