"""The peak of one order as a function of the widths is what the order problem says of it."""

from __future__ import annotations

import numpy as np
import pytest

from stages.firmware.cost.fixed_order import FixedOrder
from stages.graph.memory.overlap import Runtime
from stages.graph.memory.resources import ResourceModel, order_problem
from stages.nets.channels import find_channels
from tests.stages.firmware.cost.branching import SHAPE, Branching


@pytest.mark.parametrize("runtime", ["classic", "overlap"])
def test_a_fixed_order_has_the_peak_of_the_order_problem_at_any_widths(runtime: Runtime) -> None:
    channels = find_channels(Branching(), SHAPE)
    model, problem = ResourceModel(channels.graph, runtime), order_problem(channels.graph, runtime)
    full = [float(n) for n in channels.widths]
    fixed, order = FixedOrder(*model.order_cases(full)), model.best_order(full).order
    draw = np.random.default_rng(3)
    many = draw.uniform(4, full, (60, len(full)))
    wanted = [problem.measure(order, model._tensor_bytes(widths)).peak_bytes for widths in many.tolist()]
    assert fixed.peaks(many) == pytest.approx(wanted)
    assert [fixed.peak(widths) for widths in many.tolist()] == pytest.approx(wanted)
    assert len(set(wanted)) > 30
