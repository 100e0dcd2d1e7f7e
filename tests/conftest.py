"""The files that take longest begin first: on several processes none is then left to run alone at the end."""

from __future__ import annotations

import pytest

LONGEST = ("test_end_to_end.py", "test_fault_rounds.py", "test_installation.py", "test_bringup.py", "test_readme.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
