"""Compare the order with exhaustive search on every connected DAG of so many ops: python -m tests.benchmarks.every_small_order 7"""  # noqa: E501

from __future__ import annotations

import random
import sys
import time

from stages.graph.memory.op_order import OrderProblem
from tests.stages.graph.memory.order_oracle import CONNECTED, connected_dags, graph_of_wiring, slow_peak, smallest_peak


def main(ops: int) -> int:
    started = time.monotonic()
    wirings = connected_dags(ops)
    assert len(wirings) == CONNECTED[ops], f"{len(wirings)} wirings, needed {CONNECTED[ops]}"
    draw = random.Random(ops)
    wrong = 0
    for wiring in wirings:
        graph = graph_of_wiring(wiring, draw)
        found = OrderProblem(graph).solve()
        wrong += not found.peak_bytes == slow_peak(graph, found.order) == smallest_peak(graph)
    spent_s = time.monotonic() - started
    sys.stdout.write(f"{ops} ops: {len(wirings)} connected DAGs, {wrong} orders not minimal, {spent_s:.0f} s\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
