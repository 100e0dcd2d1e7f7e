"""Sixty measurement rounds with injected faults; a thousand of them: python -m tests.benchmarks.fault_rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.fault_rounds import KINDS, Bench, run_rounds


@pytest.mark.slow
def test_every_round_ends_right_or_with_a_clear_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slack=2)
    try:
        tally = run_rounds(bench, 60, seed=11, tell=lambda text: None)
    finally:
        bench.close()
    assert tally.wrong == []
    assert tally.right.total() + tally.errors.total() == 60
    assert tally.right.total() >= 40, f"too few rounds came through: {tally}"
    assert set(tally.right) | set(tally.errors) == set(KINDS), "a kind of fault did not happen"
    assert tally.struck.total() >= 40, f"too few faults struck: {tally.struck}"
