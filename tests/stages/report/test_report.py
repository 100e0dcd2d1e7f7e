"""The report's arithmetic on small hand-made inputs."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import StageError
from stages.nets.config import BudgetConfig
from stages.report.bringup_record import bringup_words
from stages.report.completion import completed
from stages.report.content import verdict
from stages.report.figures import (
    BoardFigures,
    Bound,
    NetworkFigures,
    Spread,
    board_figures,
    fits_memory,
    network_figures,
    spread,
)
from stages.report.stage import Report
from stages.report.terminal import table_text
from tests.stages.report.report_inputs import BOARD, TWIN, inputs, make_report, make_tables, put

SUMMARY_COLUMNS = (
    "experiment,board,source,data_source,n,accuracy_int8,size_bytes,peak_bytes,arena_bytes,macs,flash_bytes,ram_bytes,"
    "clock_hz,instructions,cycles_modelled,cycles_zero_wait,latency_ms_modelled,latency_ms,latency_ms_2sigma,"
    "energy_mj_modelled,energy_mj,energy_mj_2sigma,fits,accuracy_float,accuracy_n,budget_peak_bytes,budget_size_bytes,"
    "budget_macs,stack_high_water_bytes,stack_bytes,energy_mj_modelled_uncertainty,model_sha256,"
    "latency_ms_modelled_low,latency_ms_modelled_high,model_error,model_error_areas,"
    "measurement_point,measurement_point_modelled"
)
PLAN = {"size_bytes": 60000, "peak_bytes": 50000, "macs": 8_000_000}

PINNED = {
    "table.txt": "64c2e356c9cf",
    "summary.csv": "31c04047683e",
    "latency.csv": "48f24ff285bf",
    "energy.csv": "5b1e53157e15",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("report"))


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as stream:
        return {row["board"]: row for row in csv.DictReader(stream)}


def test_summary_has_the_columns_of_the_contract(report: Report) -> None:
    assert report.summary.read_text().splitlines()[0] == SUMMARY_COLUMNS


def test_virtual_row_has_modelled_values_and_no_measured_ones(report: Report) -> None:
    row = rows_of(report.summary)[TWIN]
    assert (row["source"], row["arena_bytes"]) == ("virtual", "40016")
    assert (row["instructions"], row["cycles_modelled"], row["latency_ms_modelled"]) == ("5000000", "4320000", "20")
    assert float(row["energy_mj_modelled"]) == pytest.approx(0.9 * 20.0)  # W * ms = mJ
    for measured in ("latency_ms", "latency_ms_2sigma", "energy_mj", "energy_mj_2sigma"):
        assert row[measured] == ""


def test_hardware_row_has_mean_and_two_sigma_and_nothing_modelled(report: Report) -> None:
    row = rows_of(report.summary)[BOARD]
    assert (row["source"], row["n"], row["latency_ms"], row["latency_ms_2sigma"]) == ("hardware", "3", "11", "2")
    for absent in ("instructions", "cycles_modelled", "cycles_zero_wait", "latency_ms_modelled", "energy_mj_modelled"):
        assert row[absent] == ""


def test_measured_and_simulated_energy_never_share_a_column(report: Report) -> None:
    assert (rows_of(report.summary)[BOARD]["energy_mj"], rows_of(report.summary)[BOARD]["energy_mj_2sigma"]) == (
        "12.5",
        "2",
    )
    measured, twin = (rows_of(report.energy)[board] for board in (BOARD, TWIN))
    assert (measured["energy_mj"], measured["energy_mj_simulated"]) == ("12.5", "")
    assert (measured["idle_mw"], measured["uncertainty_range_mj"]) == ("450", "0.25")
    assert (twin["energy_mj"], twin["energy_mj_simulated"]) == ("", "18.5")
    assert f"{BOARD}: energy measured, 12.5 ± 0.25 mJ" in report.table.read_text()


def test_a_modelled_energy_has_the_uncertainty_of_the_model_and_no_instrument(report: Report) -> None:
    measured, twin = (rows_of(report.energy)[board] for board in (BOARD, TWIN))
    assert (twin["energy_mj_modelled"], twin["energy_mj_modelled_uncertainty"]) == ("18", "4.5")
    columns = [name for name in twin if name == "instrument" or name.startswith(("uncertainty_", "idle_", "sample_"))]
    assert len(columns) > 5 and all(measured[name] for name in columns if name != "idle_mw_2sigma")
    assert [twin[name] for name in columns] == [""] * len(columns)
    assert rows_of(report.summary)[TWIN]["energy_mj_modelled_uncertainty"] == "4.5"
    text = " ".join(report.table.read_text().split())
    assert "time and energy are modelled (energy ±25 %); no board" in text and f"{TWIN}: energy" not in text


def test_modelled_time_says_what_a_board_is_likely_to_take_area_by_area(report: Report) -> None:
    row, measured = (rows_of(report.summary)[board] for board in (TWIN, BOARD))
    assert (row["latency_ms_modelled_low"], row["latency_ms_modelled_high"]) == ("16", "25")  # 20 / 1.25, 20 / 0.8
    assert measured["latency_ms_modelled_low"] == "" and measured["model_error"] == ""
    assert row["model_error"] == "model / board 0.80 to 1.25 (two networks)"
    areas = "dense (75 % of the time) 0.90 to 1.25; other (25 % of the time) unknown: never compared"
    assert row["model_error_areas"] == areas
    table, page = " ".join(report.table.read_text().split()), report.page.read_text()
    assert f"{TWIN}: 16.000 to 25.000 ms likely on a board, model / board 0.80 to 1.25 (two networks)" in table
    assert areas in table and areas in page and "16.000 to 25.000 ms likely on a board" in page
    assert "±25 %" not in page.replace("modelled (±25 %)", ""), "that of energy alone"


def test_the_row_tells_what_it_stands_on(report: Report) -> None:
    row = rows_of(report.summary)[TWIN]
    assert (row["accuracy_float"], row["accuracy_n"]) == ("0.95", "640")
    assert (row["budget_peak_bytes"], row["budget_size_bytes"], row["budget_macs"]) == ("51700", "63600", "8351000")
    assert row["model_sha256"] == hashlib.sha256(b'"network"').hexdigest()


def test_the_folder_of_a_run_says_which_run_it_is(report: Report, tmp_path: Path) -> None:
    run = {"id": "20261117-201530-ab12", "start": "2026-11-17T20:15:30.000+00:00", "seed": {"prune": 3, "data": 1}}
    run |= {"git": {"commit": "c" * 40, "dirty": True}, "config_digest": "d" * 64, "steps": [{"files": {"secret": ""}}]}
    run |= {"versions": {"torch": "2.13.0", "gcc": "12.2", "espeak-ng": None}, "command": "pipeline run </script>"}
    (tmp_path / "bringup").mkdir()
    checks = [{"name": name, "ok": name != "clock"} for name in ("probe", "clock")]
    put(
        tmp_path / "bringup" / f"bringup_{BOARD}.json",
        {"source": "hardware", "when": "2026-11-02T09:00:00+00:00", "checks": checks},
    )
    made = completed({"summary": report.summary, "page": report.page}, run, tmp_path)
    rows = list(csv.DictReader(io.StringIO(made["summary"].decode())))
    before = list(csv.DictReader(report.summary.read_text().splitlines()))
    for row, old in zip(rows, before, strict=True):
        assert {key: row[key] for key in old} == old, "what the step wrote stays"
        assert list(row)[len(old) :] == [
            *("run_id", "date", "seed", "commit", "dirty", "config_digest", "tool_versions", "bringup")
        ]
        assert (row["run_id"], row["seed"], row["commit"]) == (run["id"], "3", "c" * 40)
        assert (row["dirty"], row["tool_versions"]) == ("true", "gcc=12.2; torch=2.13.0")
    page = made["page"].decode()
    said = {row["board"]: row["bringup"] for row in rows}
    assert said[BOARD] == "2026-11-02T09:00:00+00:00, the board: failed: clock"
    assert said[TWIN] == f"no bring-up record for this board; make one with: pipeline bringup {TWIN}"
    assert all(words in page for words in said.values())
    assert run["id"] in page and "pipeline run </script>" not in page and "secret" not in page


@pytest.mark.parametrize("text", ["", "[1]", '{"checks": 3}', '{"checks": [], "source": "hardware"}', "\x00"])
def test_a_damaged_bringup_record_is_told_as_such(tmp_path: Path, text: str) -> None:
    (tmp_path / "bringup").mkdir()
    (tmp_path / "bringup" / f"bringup_{BOARD}.json").write_text(text)
    words = bringup_words(tmp_path, BOARD)
    assert words.startswith(f"bringup_{BOARD}.json cannot be read (") and f"pipeline bringup {BOARD}" in words


def test_two_sigma_is_that_of_the_definition() -> None:
    values = [3.0, 5.0, 8.5, 1.25]
    mean = sum(values) / 4
    sigma = math.sqrt(sum((value - mean) ** 2 for value in values) / 3)
    found = spread(values)
    assert found is not None
    assert found.mean == pytest.approx(mean)
    assert found.two_sigma == pytest.approx(2 * sigma)


def test_single_measurement_has_no_spread() -> None:
    found = spread([7.0])
    assert found is not None
    assert (found.mean, found.two_sigma) == (7.0, None)
    assert spread([]) is None


def test_every_row_of_every_file_says_where_it_comes_from(report: Report) -> None:
    for path in (report.latency, report.energy, report.layers):
        for board, row in rows_of(path).items():
            assert row["experiment"] == "kws_dscnn_s"
            assert row["source"] == {TWIN: "virtual", BOARD: "hardware"}[board]
            assert row["clock_hz"] == {TWIN: "216000000", BOARD: "480000000"}[board]
            assert (row["runtime"], row["n"]) == ("aot", {TWIN: "2", BOARD: "3"}[board])


def test_layers_of_all_boards_are_kept_with_their_values(report: Report) -> None:
    row = rows_of(report.layers)[TWIN]
    assert (row["index"], row["op"], row["name"], row["macs"]) == ("2", "CONV_2D", "classifier", "1000")


@pytest.mark.parametrize(("key", "allowed"), [("size_bytes", 63_600), ("peak_bytes", 51_700), ("macs", 8_351_000)])
def test_network_fits_up_to_its_budget_and_not_beyond(key: str, allowed: int, tmp_path: Path) -> None:
    for excess, fits in ((0, True), (1, False)):
        folder = tmp_path / str(excess)
        folder.mkdir()
        rows, _ = make_tables(folder, plan=PLAN | {key: allowed + excess})
        assert [row["fits"] for row in rows] == [fits, fits]


def test_a_resource_without_a_budget_is_shown_and_never_exceeded(tmp_path: Path) -> None:
    summary, text = make_tables(tmp_path, plan=PLAN | {"peak_bytes": 10**9}, budget=BudgetConfig(macs="8.351M"))
    assert [row["fits"] for row in summary] == [True, True]
    rows = [line.split() for line in text.splitlines()]
    assert ["peak", "memory", "1,000,000,000", "B", "-"] in rows
    assert ["MACs", f"{PLAN['macs']:,}", "8,351,000", "holds"] in rows


def test_image_larger_than_the_flash_does_not_fit(tmp_path: Path) -> None:
    rows, text = make_tables(tmp_path, flash_used=2_000_001)
    assert [row["fits"] for row in rows] == [False, False]
    assert f"Does not fit: The image is too large for {TWIN}, {BOARD}.\n" in text
    assert fits_memory({"regions": {"ram": {"used_bytes": 5, "size_bytes": 5}}})


def test_table_shows_the_figures_and_says_what_is_virtual(report: Report) -> None:
    text = report.table.read_text()
    for part in (
        "93.75 % of 640 test examples",
        "(pruned from 56,000,000 MACs; training took 18 % of the MACs of training all of it)",
        "60,000 B",
        "63,600 B",
        "8,000,000",
    ):
        assert part in text
    for part in ("20.000", "18.000", "11.000 ± 2.000", "virtual: instructions are counted on a QEMU twin"):
        assert part in text
    assert "exceeded" not in text


def test_table_tells_what_else_a_device_showed(report: Report) -> None:
    lines = report.table.read_text().replace("\n  ", " ").replace("  ", " ")
    assert (
        f"{BOARD} (hardware): accuracy 94.50 % of 200 test inputs, on the host 95.00 %; "
        "198 outputs bit-identical to the host's"
    ) in lines
    assert (
        f"{TWIN} (virtual): MFCC of a clip takes 2,700,000 instructions, 9.500 ms modelled; "
        "of 980 int8 features 95.00 % equal the host's, 100.00 % within 1"
    ) in lines
    assert (
        f"{TWIN} (virtual): in 60 s of synthetic speech 13 of 16 words heard, 3 missed, 1 false alarms; "
        "core busy 25 % of the time, modelled"
    ) in lines


def test_table_names_the_excess(tmp_path: Path) -> None:
    assert "exceeded by 300 B" in make_tables(tmp_path, plan=PLAN | {"peak_bytes": 52_000})[1]


def test_budgets_of_the_firmware_stand_beside_what_was_predicted_and_what_was_found(tmp_path: Path) -> None:
    given = {TWIN: {"latency_ms": 19.5, "flash_bytes": 90_000}, BOARD: {"energy_mj": 13.0}, "stove": {"ram_bytes": 1}}
    predicted = {TWIN: {"latency_ms": 19.25, "flash_bytes": 79_000}, BOARD: {"energy_mj": 12.25}}
    metrics = {"before": {"macs": 5}, "macs_trained_relative": 0.5, "device": {"budget": given, "predicted": predicted}}
    rows = inputs(tmp_path)
    put(rows["prune_metrics"], metrics)
    trained = [rows[name] for name in ("dataset", "accuracy", "plan", "prune_metrics", "budget")]
    network = network_figures("kws", *trained)
    per_board = ("footprint", "samples", "device", "device_accuracy")
    boards = [board_figures(name, *(rows[kind][name] for kind in per_board)) for name in (TWIN, BOARD)]
    lines = [" ".join(line.split()) for line in table_text(network, boards).splitlines()]
    start = lines.index("firmware budget predicted found")
    assert lines[start + 1 : start + 5] == [
        f"latency on {TWIN} 19.500 ms 19.250 ms 20.000 ms, modelled exceeded",
        f"flash on {TWIN} 90,000 B 79,000 B 80,000 B, linked holds",
        f"energy on {BOARD} 13.000 mJ 12.250 mJ 12.500 mJ, measured holds",
        "RAM on stove 1 B - -",
    ]
    told = verdict(network, boards)
    assert told.tone == "bad" and f"atency on {TWIN}" in told.sentence
    assert f"latency on {TWIN}: budget 19.500 ms, predicted 19.250 ms, found 20.000 ms, modelled" in told.reasons


def test_the_text_of_the_report_is_pinned(report: Report) -> None:
    """Every column and word: before a digest is changed, look at what people will read."""
    written = [report.table, report.summary, report.latency, report.energy]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in written} == PINNED


NETWORK = NetworkFigures("kws", "builtin", 0.5, None, Bound(5, None), Bound(6, 7), Bound(8, 8), None, None)
NO_ENERGY = {"source": None, "idle_mw": None, "instrument": "N6705C"}
LONE_BOARD = BoardFigures(
    *("stove", "virtual", 100_000_000, "aot", 1, 1, 2, 3, True, None, None, None, None, Spread(1.5, None)),
    *(0.5, None, (), None, None, NO_ENERGY),
)


def test_nothing_dangles_where_nothing_is_known_of_the_model() -> None:
    text = " ".join(table_text(NETWORK, [LONE_BOARD]).split())
    assert "no board was measured. Outputs are bit-identical to TensorFlow Lite Micro's. cycles are not" in text


def test_table_leaves_out_what_is_not_known() -> None:
    lines = table_text(NETWORK, [LONE_BOARD]).splitlines()
    assert lines[0] == "kws on builtin: int8 accuracy 50.00 %"
    assert lines[7].split() == ["board", "source", "MHz", "flash", "B", "RAM", "B", "ms", "measured", "n"]
    assert lines[6] == "" and lines[8].split() == ["stove", "virtual", "100", "2", "3", "1.500", "1"]
    assert lines[-2].startswith("cycles are not modelled: the profiler needs a C compiler")
    assert table_text(replace(NETWORK, unpruned_macs=9), [LONE_BOARD]) == table_text(NETWORK, [LONE_BOARD])
    measured = {**NO_ENERGY, "source": "measured", "energy_mj": 2.0, "uncertainty_mj": 0.1, "n": 4}
    hardware = replace(LONE_BOARD, source="hardware", energy=measured)
    sentence = "stove: energy measured, 2 ± 0.1 mJ an inference, n 4; N6705C"
    fits = "Fits: All 2 budgets hold, and the image fits the memory of stove."
    assert table_text(NETWORK, [hardware]).splitlines()[9:] == ["", fits, sentence]
    both = table_text(NETWORK, [hardware, replace(LONE_BOARD, cycles_modelled=7, fits_memory=False)])
    assert "virtual: instructions" in both and "cycles are not modelled" not in both
    assert "Does not fit: The image is too large for stove.\n" in both


def test_a_table_fits_a_hundred_columns_and_hostile_names_are_text() -> None:
    hostile = "\x1b[31mred\x07\u202e" + "long" * 9
    twin = replace(LONE_BOARD, board="nucleo_h743zi2", instructions=Spread(123_456_789.0, 0.0), latency_ms=None)
    twin = replace(twin, latency_ms_modelled=1234.5, energy_mj_modelled=4321.5, flash_bytes=1_999_999, ram_bytes=65_536)
    text = table_text(replace(NETWORK, experiment=hostile, data_source=hostile), [twin])
    assert max(map(len, text.splitlines())) <= 100
    assert text.replace("\n", "").isprintable() and "\\x1b[31mred\\x07\\u202e" in text


def test_the_peak_is_that_of_the_runtime(tmp_path: Path) -> None:
    for name, value in (("d", {"source": "s"}), ("a", {"accuracy_int8": 1}), ("m", {})):
        put(tmp_path / name, value)
    put(tmp_path / "p", {**PLAN, "peak_bytes_overlap": 40_000})
    paths = [tmp_path / name for name in "dapm"]
    peaks = [
        network_figures("kws", *paths, BudgetConfig(runtime=kind, macs="9M")).peak.used
        for kind in ("classic", "overlap")
    ]
    assert peaks == [50_000, 40_000]
    (tmp_path / "samples.csv").write_text("runtime,latency_ms\n")
    with pytest.raises(StageError, match="samples.csv of stove: no samples, needed at least one; run the measure step"):
        board_figures("stove", paths[3], tmp_path / "samples.csv", paths[3], paths[3])


def test_missing_value_names_the_file_and_the_key(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="plan.json: no key 'macs'"):
        make_tables(tmp_path, plan={key: value for key, value in PLAN.items() if key != "macs"})
