"""What a step was last made of, and what it was made of before that."""

from __future__ import annotations

from pathlib import Path

from pipeline.engine.dag import Node
from pipeline.engine.history import History, Use

NODE = Node("mill")


def test_a_change_is_remembered_until_the_next_one(tmp_path: Path) -> None:
    history = History(tmp_path, "bread")
    assert history.last(NODE) is None
    history.record(NODE, {"a": 1}, "ran")
    assert history.last(NODE) == Use({"a": 1}, None, "ran")
    history.record(NODE, {"a": 1}, "cached")
    assert history.last(NODE) == Use({"a": 1}, None, "ran"), "how it came about stays known"
    history.record(NODE, {"a": 2}, "cached")
    assert history.last(NODE) == Use({"a": 2}, {"a": 1}, "cached")
    history.record(NODE, {"a": 2}, "ran")
    assert history.last(NODE) == Use({"a": 2}, {"a": 1}, "ran"), "a forced run changes no ingredient"
    assert [path.name for path in (tmp_path / "history" / "bread").iterdir()] == ["mill.json"]


def test_a_torn_file_only_costs_the_explanation(tmp_path: Path) -> None:
    history = History(tmp_path, "bread")
    history.record(NODE, {"a": 1}, "ran")
    (tmp_path / "history" / "bread" / "mill.json").write_text('{"ingredients": ')
    assert History(tmp_path, "bread").last(NODE) is None
