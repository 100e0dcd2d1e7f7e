"""The report's arithmetic on small hand-made inputs."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from pipeline.errors import StageError
from stages.nets.config import BudgetConfig
from stages.report.chart import layer_chart
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
from stages.report.page import charts
from stages.report.stage import Report, run
from stages.report.terminal import table_text

BUDGET = BudgetConfig(peak_bytes="51.7KB", size_bytes="63.6KB", macs="8.351M")
SUMMARY_COLUMNS = (
    "experiment,board,source,data_source,n,accuracy_int8,size_bytes,peak_bytes,arena_bytes,macs,flash_bytes,ram_bytes,"
    "clock_hz,instructions,cycles_modelled,cycles_zero_wait,latency_ms_modelled,latency_ms,latency_ms_2sigma,"
    "energy_mj_modelled,energy_mj,energy_mj_2sigma,fits"
)
PLAN = {"size_bytes": 60000, "peak_bytes": 50000, "macs": 8_000_000}
BOARD, TWIN = "nucleo_h743zi2", "nucleo_f767zi"
LATENCIES_MS = (10.0, 11.0, 12.0)

PINNED = {
    "table.txt": "e1c7ed8948b5",
    "summary.csv": "400a0ce538e5",
    "latency.csv": "62c045bd29c6",
    "energy.csv": "632edffebadd",
    "layers.csv": "08ced32fa440",
    "report.html": "1d9903d821ad",
    "layers_nucleo_f767zi.svg": "4ea07b044973",
    "layers_nucleo_h743zi2.svg": "ee4b3eaf4b2f",
    "pruning_losses.svg": "fb375e8b0f0d",
    "pruning_macs.svg": "e10e65c6245d",
    "pruning_masks.svg": "b0f7ddbc559a",
    "pruning_memory_bytes.svg": "b8ad1907c3f1",
    "pruning_resources.svg": "015bfc01f002",
    "pruning_size_bytes.svg": "52dce69e7fc4",
    "pruning_widths.svg": "105a6c13b2d2",
}


def put(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def put_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def energy(source: str, energy_mj: float) -> dict[str, object]:
    """As the measure step tells it."""
    parts = ("uncertainty_mj", "uncertainty_spread_mj", "uncertainty_noise_mj", "uncertainty_sampling_mj")
    uncertainty = dict.fromkeys((*parts, "uncertainty_time_base_mj", "uncertainty_range_mj"), 0.25)
    how = {
        "source": source,
        "instrument": "N6705C MY1",
        "n": 3,
        "inferences_per_window": 4,
        "sample_interval_us": 20.48,
    }
    idle = {"idle_mw": 450.0, "idle_mw_2sigma": 1.5, "above_idle_mj": energy_mj / 2}
    return {**how, **idle, **uncertainty, "energy_mj": energy_mj}


def make_report(
    tmp_path: Path, plan: dict[str, int] = PLAN, flash_used: int = 80000, budget: BudgetConfig = BUDGET
) -> Report:
    """One board measured on a twin, another one on hardware."""
    footprint = {"flash_bytes": flash_used, "ram_bytes": 70000, "arena_bytes": 40016}
    footprint["regions"] = {"flash": {"used_bytes": flash_used, "size_bytes": 2_000_000}}
    of_twin = {
        "board": TWIN,
        "front_end": {
            "instructions": 2_700_000,
            "cycles": None,
            "latency_ms_modelled": 9.5,
            "features": 980,
            "features_equal": 931,
            "features_within_one": 980,
        },
        "stream": {
            "seconds": 60.0,
            "score": {"words": 16, "hits": 13, "misses": 3, "false_alarms": 1},
            "busy_share_modelled": 0.25,
        },
        "power_w_modelled": 0.9,
        "source": "virtual",
        "clock_hz": 216_000_000,
        "cycles_modelled": 4_320_000,
        "cycles_zero_wait": 4_000_000,
        "energy": energy("simulated", 18.5),
    }
    of_board = {
        "board": BOARD,
        "front_end": None,
        "stream": None,
        "power_w_modelled": 1.2,
        "source": "hardware",
        "clock_hz": 480_000_000,
        "cycles_modelled": None,
        "cycles_zero_wait": None,
        "energy": energy("measured", 12.5),
    }
    common = {"runtime": "aot"}
    of_energy = {"energy_mj": "", "energy_mj_simulated": ""}
    twin_rows = [
        {**common, **of_energy, "instructions": 5_000_000, "latency_ms": "", "energy_mj_simulated": energy_mj}
        for energy_mj in (18.0, 19.0)
    ]
    board_rows = [
        {**common, **of_energy, "instructions": "", "latency_ms": latency, "energy_mj": latency + 1.5}
        for latency in LATENCIES_MS
    ]
    layer = {"index": 0, "op": "CONV_2D", "name": "a,<b>", "instructions": 17, "cycles_modelled": "", "cycles": ""}
    out_dir = tmp_path / "out"
    out_dir.mkdir()
    steps = [
        {"step": step, "size_bytes": size, "peak_bytes": size // 2, "macs": 100 * size, "train_loss": 2.0,
         "task_loss": "", "masks_changed": 0.05, "peak_bytes_imprecise": size // 3}
        for step, size in ((40, 420_000), (60, 60_000))
    ]  # fmt: skip
    pruned = {"index": 0, "op": "CONV_2D", "name": "stem<1>"} | {
        f"{name}_{when}": value
        for name in ("channels", "memory_bytes", "macs", "size_bytes")
        for when, value in (("before", 276), ("after", 80))
    }
    return run.function(
        put(tmp_path / "dataset.json", {"source": "builtin"}),
        put(tmp_path / "accuracy.json", {"accuracy_int8": 0.9375, "n": 640}),
        put(tmp_path / "plan.json", plan),
        put(tmp_path / "metrics.json", {"before": {"macs": 56_000_000}, "macs_trained_relative": 0.1849}),
        {name: put(tmp_path / f"{name}.footprint.json", footprint) for name in (BOARD, TWIN)},
        {BOARD: put_rows(tmp_path / "b.csv", board_rows), TWIN: put_rows(tmp_path / "t.csv", twin_rows)},
        {name: put_rows(tmp_path / f"{name}.layers.csv", [layer]) for name in (BOARD, TWIN)},
        {
            TWIN: put(tmp_path / "t.json", {**of_twin, "latency_ms_modelled": 20.0}),
            BOARD: put(tmp_path / "b.json", {**of_board, "latency_ms_modelled": None}),
        },
        {
            TWIN: put(tmp_path / "t.accuracy.json", {"n": 0}),
            BOARD: put(
                tmp_path / "b.accuracy.json",
                {"n": 200, "accuracy_device": 0.945, "accuracy_host": 0.95, "outputs_equal": 198},
            ),
        },
        put_rows(tmp_path / "trajectory.csv", steps),
        put_rows(tmp_path / "pruned_layers.csv", [pruned]),
        budget=budget,
        experiment="kws_dscnn_s",
        out_dir=out_dir,
    )


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
    rows = rows_of(report.energy)
    for board, own, other in ((BOARD, "", "_simulated"), (TWIN, "_simulated", "")):
        row = rows[board]
        assert float(row[f"energy_mj{own}"]) == {BOARD: 12.5, TWIN: 18.5}[board]
        assert (row[f"idle_mw{own}"], row[f"uncertainty_range_mj{own}"]) == ("450", "0.25")
        for column in ("energy_mj", "idle_mw", "idle_mw_2sigma", "uncertainty_mj", "uncertainty_noise_mj"):
            assert row[f"{column}{other}"] == ""
    text = report.table.read_text()
    assert f"{TWIN}: energy simulated (no board was measured), 18.5 ± 0.25 mJ an inference, n 3, idle 450.0 mW" in text
    assert f"{BOARD}: energy measured, 12.5 ± 0.25 mJ" in text


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
    assert (row["index"], row["op"], row["name"], row["instructions"]) == ("0", "CONV_2D", "a,<b>", "17")


@pytest.mark.parametrize(("key", "allowed"), [("size_bytes", 63_600), ("peak_bytes", 51_700), ("macs", 8_351_000)])
def test_network_fits_up_to_its_budget_and_not_beyond(key: str, allowed: int, tmp_path: Path) -> None:
    for excess, fits in ((0, "true"), (1, "false")):
        folder = tmp_path / fits
        folder.mkdir()
        row = rows_of(make_report(folder, PLAN | {key: allowed + excess}).summary)[TWIN]
        assert row["fits"] == fits


def test_a_resource_without_a_budget_is_shown_and_never_exceeded(tmp_path: Path) -> None:
    report = make_report(tmp_path, PLAN | {"peak_bytes": 10**9}, budget=BudgetConfig(macs="8.351M"))
    assert rows_of(report.summary)[TWIN]["fits"] == "true"
    rows = [line.split() for line in report.table.read_text().splitlines()]
    assert ["peak", "memory", "1,000,000,000", "B", "-"] in rows
    assert ["MACs", f"{PLAN['macs']:,}", "8,351,000", "holds"] in rows


def test_image_larger_than_the_flash_does_not_fit(tmp_path: Path) -> None:
    report = make_report(tmp_path, flash_used=2_000_001)
    assert rows_of(report.summary)[TWIN]["fits"] == "false"
    assert f"the image does not fit the memory of: {TWIN}, {BOARD}.\n" in report.table.read_text()
    assert fits_memory({"regions": {"ram": {"used_bytes": 5, "size_bytes": 5}}})


def test_table_shows_the_figures_and_says_what_is_virtual(report: Report) -> None:
    text = report.table.read_text()
    for part in (
        "93.75 % of 640 test examples",
        "(pruned from 56,000,000 MACs; training took 18 % of the MACs of training all of it)",
        "60,000 B",
        "63,600 B",
        "8,000,000",
        "5,000,000",
        "4,320,000",
    ):
        assert part in text
    for part in ("20.000", "18.000", "11.000 ± 2.000", "source virtual: instructions counted on a QEMU twin"):
        assert part in text
    assert "exceeded" not in text


def test_table_tells_what_else_a_device_showed(report: Report) -> None:
    lines = [line.strip() for line in report.table.read_text().splitlines()]
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


def test_page_shows_every_op_and_escapes_names(report: Report) -> None:
    page = report.page.read_text()
    assert "0 CONV_2D a,&lt;b&gt;" in page
    assert "a,<b>" not in page
    assert "17 (100.0 %)" in page
    assert f"{TWIN} (virtual): instructions per op" in page
    assert (report.figures / f"layers_{TWIN}.svg").read_text() in page


def test_every_figure_is_there_as_svg_and_png(report: Report) -> None:
    folder = report.figures
    names = {path.stem for path in folder.iterdir()}
    assert f"layers_{TWIN}" in names and any(name.startswith("pruning_") for name in names)
    assert {path.name for path in folder.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    for name in names:
        drawn = ElementTree.parse(folder / f"{name}.svg").getroot()
        with Image.open(folder / f"{name}.png") as picture:
            assert picture.size == tuple(2 * int(drawn.attrib[side]) for side in ("width", "height"))
            title = picture.convert("L").crop((0, 0, 200, 48))
        assert title.getextrema()[0] < 100 and title.getextrema()[1] == 255  # letters on white


def test_bars_are_as_long_as_their_share_of_the_largest() -> None:
    rows = [
        {"index": str(index), "op": "ADD", "name": "x", "cycles": str(value)} for index, value in enumerate((50, 200))
    ]
    root = ElementTree.fromstring(layer_chart("t & t", rows, "cycles"))
    first, second = (float(bar.get("width")) for bar in root.iter("{http://www.w3.org/2000/svg}rect"))
    assert second == 4 * first > 0


def test_table_names_the_excess(tmp_path: Path) -> None:
    assert "exceeded by 300 B" in make_report(tmp_path, PLAN | {"peak_bytes": 52_000}).table.read_text()


def test_the_text_of_the_report_is_pinned(report: Report) -> None:
    """Every column, word and coordinate: before a digest is changed, look at what people will read."""
    written = [report.table, report.summary, report.latency, report.energy, report.layers, report.page]
    figures = sorted(report.figures.glob("*.svg"))
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in (*written, *figures)}
    assert found == PINNED


NETWORK = NetworkFigures("kws", "builtin", 0.5, None, Bound(5, None), Bound(6, 7), Bound(8, 8), None, None)
NO_ENERGY = {"source": None, "idle_mw": None, "instrument": "N6705C"}
LONE_BOARD = BoardFigures(
    *("stove", "virtual", 100_000_000, "aot", 1, 1, 2, 3, True, None, None, None, None, Spread(1.5, None)),
    *(0.5, None, (), None, None, NO_ENERGY),
)


def test_table_leaves_out_what_is_not_known() -> None:
    lines = table_text(NETWORK, [LONE_BOARD]).splitlines()
    assert lines[0] == "kws on builtin: int8 accuracy 50.00 %"
    assert lines[6] == "" and lines[8].split() == [
        "stove",
        "virtual",
        "100",
        "2",
        "3",
        "-",
        "-",
        "-",
        "-",
        "1.500",
        "1",
    ]
    assert lines[-1].startswith("cycles are not modelled: the profiler needs a C compiler")
    assert table_text(replace(NETWORK, unpruned_macs=9), [LONE_BOARD]) == table_text(NETWORK, [LONE_BOARD])
    measured = {**NO_ENERGY, "source": "measured", "energy_mj": 2.0, "uncertainty_mj": 0.1, "n": 4}
    hardware = replace(LONE_BOARD, source="hardware", energy=measured)
    sentence = "stove: energy measured, 2 ± 0.1 mJ an inference, n 4; N6705C"
    assert table_text(NETWORK, [hardware]).splitlines()[9:] == ["", sentence]
    both = table_text(NETWORK, [hardware, replace(LONE_BOARD, cycles_modelled=7, fits_memory=False)])
    assert "source virtual: " in both and "cycles are not modelled" not in both
    assert both.endswith("the image does not fit the memory of: stove.\n")


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


def test_ops_are_drawn_by_the_best_figure_that_all_of_them_have(tmp_path: Path) -> None:
    op = {"index": 0, "op": "ADD", "name": "a", "cycles": "", "cycles_modelled": 5, "instructions": 9}
    file = put_rows(tmp_path / "ops.csv", [op, {**op, "cycles_modelled": "", "cycles": 4}])
    assert ": instructions per op" in charts([LONE_BOARD], {"stove": file})["layers_stove"]
    file.write_text(file.read_text().splitlines()[0] + "\n")
    assert charts([LONE_BOARD], {"stove": file}) == {}


def test_missing_value_names_the_file_and_the_key(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="plan.json: no key 'macs'"):
        make_report(tmp_path, {key: value for key, value in PLAN.items() if key != "macs"})
