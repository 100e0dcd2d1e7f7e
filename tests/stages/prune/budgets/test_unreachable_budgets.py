"""Budgets of the firmware that nothing can meet: one sentence before anything is prepared or trained, exit code 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import boards
from pipeline import fit
from pipeline.errors import ConfigError
from stages.nets.channels import find_channels
from stages.nets.registry import build
from stages.prune.training import check
from stages.prune.widths import WidthRule
from tests.benchmarks.subjects.pruning_experiments import PROJECT, prune_experiment

BOARD = "nucleo_f767zi"
TINY = ("network.width=8", "network.blocks=1")  # cheap to compile; its narrowest network decides


def refusal(**budget: str) -> str:
    """What the run says before its first step (`check` of the prune step) about an experiment with this budget."""
    settings = [*TINY, *(f"budget.{key}={value}" for key, value in ({"board": BOARD} | budget).items())]
    asked = prune_experiment("kws_dscnn_s", settings)
    with pytest.raises(ConfigError) as refused:
        check(asked.prune, asked.network, asked.budget)
    assert refused.value.exit_code == 2
    return str(refused.value)


@pytest.mark.parametrize(
    ("budget", "found", "reachable"),
    [
        ({"latency_ms": "0.01"}, "budget.latency_ms: 0.01 ms cannot be met, dscnn with 4 channels", "at least 0.5"),
        ({"latency_ms": "1%"}, "budget.latency_ms: 0.0", "at least 0.5"),
        ({"energy_mj": "0.01"}, "budget.energy_mj: 0.01 mJ cannot be met, dscnn with 4 channels", "at least 0.4"),
        ({"latency_ms": "9", "board": "nucleo_f767"}, "unknown board 'nucleo_f767', known are", f"mean '{BOARD}'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_one_sentence_with_what_can(budget: dict[str, str], found: str, reachable: str) -> None:
    sentence = refusal(**budget)
    assert found in sentence and reachable in sentence and "\n" not in sentence


def test_energy_on_a_board_without_a_power_figure_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(boards.BOARDS_FOLDER / BOARD, tmp_path / "new_board")
    lines = (tmp_path / "new_board" / "board.yaml").read_text().replace(BOARD, "new_board").splitlines()
    unknown = "\n".join(line for line in lines if not line.startswith("power_active_w"))
    (tmp_path / "new_board" / "board.yaml").write_text(unknown)
    monkeypatch.setattr(boards, "BOARDS_FOLDER", tmp_path)
    sentence = refusal(board="new_board", energy_mj="9")
    assert sentence.startswith("boards/new_board/board.yaml: power_active_w: missing; add it")


def test_what_fit_calls_the_smallest_can_be_met_and_less_cannot() -> None:
    found = fit("kws_dscnn_s", BOARD, set=TINY, project=PROJECT)
    smallest, largest = found.record["smallest"], found.record["largest"]
    assert smallest["widths"] == (4, 4) and largest["widths"] == (8, 8) and largest["share"] == 1.0
    assert all(smallest[name] < largest[name] for name in ("latency_ms", "energy_mj", "flash_bytes", "ram_bytes"))
    assert f"{smallest['ram_bytes']:,}" in found.text and json.dumps(found.record)
    sentence = refusal(ram_bytes=f"{smallest['ram_bytes'] - 1}B")
    assert sentence.startswith(f"budget.ram_bytes: {smallest['ram_bytes'] - 1} B cannot be met, dscnn with 4 channels")
    assert f"raise the budget to at least {smallest['ram_bytes']} B" in sentence


@pytest.mark.parametrize("limit", [5, 6, 17, 31, 40, 99])
def test_the_widest_network_is_found_to_the_channel(limit: int) -> None:
    asked = prune_experiment("kws_dscnn_s", ["network.width=40", "network.blocks=2"])
    rule = WidthRule(find_channels(build(asked.network), asked.network.input_shape), asked.prune)
    share, widths = rule.widest_uniform(lambda tried: max(tried) <= limit)
    assert widths == (min(limit, 40),) * 3 and share == min(limit, 40) / 40


@pytest.mark.parametrize(
    ("board", "settings", "sentence"),
    [
        ("nucleo", (), "boards: unknown board 'nucleo', known are"),
        (
            BOARD,
            (*TINY, "network.input_shape=[700,700,1]"),
            f"fit: dscnn with 4 channels in every layer does not fit the memory of {BOARD}; choose a board",
        ),
    ],
)
def test_fit_says_what_stands_against_it(board: str, settings: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fit("kws_dscnn_s", board, set=settings, project=PROJECT)
    assert str(refused.value).startswith(sentence) and refused.value.exit_code == 2
