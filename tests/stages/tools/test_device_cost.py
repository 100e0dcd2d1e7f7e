"""`pipeline resources EXPERIMENT --board`: ms, mJ, flash and RAM of the unpruned network, layer by layer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from boards import load_board
from stages.firmware.config import FirmwareConfig
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.tools.resource_table import resources

BOARD = "nucleo_f767zi"


def test_resources_on_a_board_are_those_of_its_layers() -> None:
    """From the command line to the compiler and back."""
    narrow = ["--set", "network.width=8", "--set", "firmware.front_end=mfcc", "--set", "firmware.clock=72MHz"]
    argv = [sys.executable, "-m", "pipeline.cli", "resources", "kws_dscnn_s", "--board", BOARD, *narrow, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["board"]
    assert found["board"] == BOARD and found["fits"]
    layers = found["layers"]
    assert sum(each["cycles_modelled"] for each in layers) == pytest.approx(found["cycles_modelled"], abs=len(layers))
    assert found["latency_ms"] == pytest.approx(found["cycles_modelled"] / 72e6 * 1e3, rel=1e-4)
    power_w = load_board(BOARD).at_clock(72_000_000).power_active_w
    assert found["energy_mj"] == pytest.approx(found["latency_ms"] * power_w)
    assert sum(each["latency_ms_modelled"] for each in layers) == pytest.approx(found["latency_ms"])
    assert found["flash_bytes"] > sum(each["flash_bytes"] for each in layers) > 0
    assert found["ram_bytes"] > found["arena_bytes"] >= max(each["arena_live_bytes"] for each in layers)
    assert found["front_end_counted"] is False


def test_the_table_says_where_its_figures_come_from_and_what_they_leave_out() -> None:
    tiny = NetworkConfig(name="res8", width=4, input_shape=(10, 8, 1))
    text = resources(tiny, BudgetConfig(macs="1M"), FirmwareConfig(front_end="mfcc"), BOARD).text
    board, *table, left_out = text.split("\n\n")[1].splitlines()
    assert board.startswith(f"{BOARD}: modelled at 216 MHz, not calibrated; power 0.9 W, a typical figure")
    assert table[0].split() == ["op", "kernel", "ms", "mJ", "flash", "B", "arena", "B"]
    assert table[-1].split()[:2] == ["the", "firmware"]
    assert left_out == "without the front end (mfcc), whose time, flash and RAM come on top"


def test_a_network_that_does_not_fit_its_board_is_told_as_such_by_how_much() -> None:
    large = NetworkConfig(name="res8", width=4, input_shape=(400, 400, 1))
    answer = resources(large, BudgetConfig(macs="1M"), FirmwareConfig(), "disco_f746ng")
    assert answer.record["board"] == {"board": "disco_f746ng", "fits": False}
    assert "sram of disco_f746ng has 262144 B" in answer.text and "B over)" in answer.text
