"""A stack deeper than its bound is a mistake of ours, and stops the measurement."""

from __future__ import annotations

import pytest

from pipeline.errors import StageError
from stages.measure.stack_check import check_stack

FOOTPRINT = {"stack": {"image_bytes": 500}, "stack_twin": {"image_bytes": 400}}


def test_each_source_has_its_own_bound() -> None:
    check_stack(400, FOOTPRINT, "virtual")
    check_stack(500, FOOTPRINT, "hardware")
    with pytest.raises(StageError, match=r"the stack went 401 B deep, the bound of footprint.json is 400 B"):
        check_stack(401, FOOTPRINT, "virtual")
    with pytest.raises(StageError, match="501 B deep"):
        check_stack(501, FOOTPRINT, "hardware")
