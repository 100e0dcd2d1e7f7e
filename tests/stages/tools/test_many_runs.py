"""report --all on made-up records: every file, the means and spreads, and what is refused."""

from __future__ import annotations

import csv
import statistics

import pytest

from pipeline.errors import ConfigError
from stages.report.charts.published import PUBLISHED
from stages.report.pareto_page import pareto
from stages.tools.many_runs import report_all
from tests.stages.report.test_pages import many_runs


def test_points_are_means_over_seeds_with_two_sigma(tmp_path):
    records = many_runs(20)
    answer = report_all(records, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "pareto.csv").read_text().splitlines()))
    assert len(rows) == 4 * 2 and answer.record["runs"] == 20
    for row in rows:
        own = [record for record in records if row["variant"] in record["overrides"]]
        found = [float(record["rows"][0]["accuracy_int8"]) for record in own]
        assert float(row["accuracy_int8"]) == pytest.approx(statistics.fmean(found))
        assert float(row["accuracy_int8_2sigma"]) == pytest.approx(2 * statistics.stdev(found))
        assert row["seeds"] == "5" and row["latency_ms"] == "" and float(row["latency_ms_modelled"]) > 19
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {f"pareto_size_bytes.{kind}" for kind in ("svg", "png", "csv")} <= names
    assert "pareto_latency_ms.svg" not in names  # nothing was measured
    report_all(records, tmp_path / "out")  # again, over what is there


def test_the_same_seed_twice_is_one_run_and_another_configuration_is_another_point():
    first, *_ = many_runs(5)
    again = {**first, "id": "later"}
    changed = {**first, "id": "other", "config": {**first["config"], "qat": {"epochs": 9}}}
    table, _ = pareto([first, again])
    assert table["seeds"].tolist() == [1, 1] and table["accuracy_int8_2sigma"].isna().all()
    table, _ = pareto([first, changed])
    assert table["variant"].nunique() == 2


def test_published_points_are_those_of_the_paper_and_labelled_as_theirs():
    _, charts = pareto(many_runs(5))
    data = next(chart.data for chart in charts if chart.name == "pareto_macs")
    theirs = data[data["row"] == "published"]
    assert theirs["cost"].tolist() == pytest.approx([8_342_000, 8_351_000])
    assert theirs["accuracy_int8"].tolist() == [0.9575, 0.954]
    assert theirs["experiment"].str.endswith("(the paper's)").all()
    assert all(0.5 < each.accuracy < 1 for group in PUBLISHED.values() for each in group)


def test_nothing_whole_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="report: 1 runs, none of them whole; make one with: pipeline run"):
        report_all([{"name": "kws", "id": "1", "rows": []}], tmp_path)
