"""One network at several clocks: rows from device.json, the pace with its idle time, the best clock."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from boards import load_board
from pipeline.errors import ConfigError
from pipeline.stage import write_json
from stages.tools.modelling.clocks import at_clock, best_clock, clock_settings, study

BOARD = load_board("nucleo_h743zi2")
CYCLES = 5_000_000


def told(hz: int, source: str = "virtual") -> dict[str, Any]:
    """device.json of a network of so many cycles; on a board measured by an instrument."""
    on_board = source == "hardware"
    energy = {"source": "measured" if on_board else None, "reason": ""}
    energy |= {"energy_mj": 6.0, "idle_mw": 100.0, "measurement_point": "mcu"} if on_board else {}
    return {
        **{"source": source, "clock_hz": hz, "burst": {"ticks": CYCLES} if on_board else None, "energy": energy},
        "latency_ms_modelled": CYCLES / hz * 1e3,
    }


@pytest.mark.parametrize("hz", [setting.hz for setting in BOARD.clocks])
def test_energies_follow_the_power_model(hz: int) -> None:
    row = at_clock(BOARD, told(hz), 1.0)
    there = BOARD.at_clock(hz)
    seconds = CYCLES / hz
    assert row.energy_mj_modelled == pytest.approx(1e3 * there.power_active_w * seconds)
    average_w = there.power_active_w * seconds + there.power_idle_w * (1 - seconds)
    assert row.average_mw_modelled == pytest.approx(1e3 * average_w)
    assert (row.energy_mj, row.average_mw, row.measurement_point) == (None, None, "board")


def test_the_best_clock_is_the_slowest_that_keeps_a_leisurely_pace_and_the_fastest_for_a_hurried_one() -> None:
    def best(pace: float) -> int | None:
        found = best_clock([at_clock(BOARD, told(setting.hz), pace) for setting in BOARD.clocks])
        return None if found is None else found.clock_hz // 1_000_000

    assert best(1.0) == 120, "idle takes less there, and there is time enough"
    assert best(90.0) == 480, "no other keeps up: 5 M cycles in 11 ms"
    assert best(1000.0) is None


def test_what_an_instrument_saw_stands_apart_from_the_model() -> None:
    row = at_clock(BOARD, told(480_000_000, "hardware"), 10.0)
    assert (row.energy_mj, row.idle_mw, row.measurement_point) == (6.0, 100.0, "mcu")
    assert row.average_mw == pytest.approx(10 * 6.0 + 100 * (1 - 10 * CYCLES / 480e6))
    assert row.average == row.average_mw != row.average_mw_modelled


def test_the_study_writes_a_table_and_a_chart_and_says_which_clock(tmp_path: Path) -> None:
    folders = []
    for setting in BOARD.clocks[:3]:
        folders.append(tmp_path / str(setting.hz))
        folders[-1].mkdir()
        write_json(folders[-1] / "device.json", told(setting.hz))
    answer = study("nucleo_h743zi2", folders, 20.0, tmp_path / "out")
    assert answer.record["best_clock_hz"] == 240_000_000
    assert "best for 20 inferences a second: 240 MHz" in answer.text and "mW modelled" in answer.text
    with (tmp_path / "out" / "clocks.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["clock_hz"] for row in rows] == ["480000000", "400000000", "240000000"]
    assert all(row["source"] == "virtual" and row["energy_mj"] == "" for row in rows)
    assert "nucleo_h743zi2 (virtual, modelled; board supply)" in (tmp_path / "out" / "clocks.svg").read_text()


def test_a_clock_that_the_board_does_not_know_is_refused() -> None:
    assert clock_settings("nucleo_f767zi", ()).record["clocks_mhz"] == [216, 144, 72]
    assert clock_settings("nucleo_f767zi", (72,)).record["clocks_mhz"] == [72]
    with pytest.raises(ConfigError, match="nucleo_f767zi knows no 100 MHz, needed some of 216, 144, 72"):
        clock_settings("nucleo_f767zi", (100,))
