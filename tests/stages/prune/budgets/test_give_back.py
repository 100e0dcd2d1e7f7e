"""What the budgets leave goes back to the network: never over a budget, never narrower, nothing left that would fit."""

from __future__ import annotations

import pytest

from tests.benchmarks.firmware.give_back import filled


@pytest.mark.parametrize("name", ["kws_dscnn_s", "kws_res15", "cifar10_tiny"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_experiment_is_filled_to_the_edge_of_its_budgets(name: str, seed: int) -> None:
    found = filled(name, seed)
    assert found.edge and not found.over
    assert all(after >= before for before, after in zip(found.before, found.after, strict=True))
    # The slow, obvious oracle: a channel more anywhere, and a budget breaks.
    for group, (width, full) in enumerate(zip(found.after, found.full, strict=True)):
        if width < full:
            wider = (*found.after[:group], width + 1, *found.after[group + 1 :])
            assert found.objectives.exceeded(wider, exactly=True), f"group {group} could be wider than {width}"
