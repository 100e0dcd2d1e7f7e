"""Slots of a sweep: never more than there are, the earliest point first, and nobody waits on when it is stopped."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.sweeps.slots import Slots, SweepStopped


class Nobody:
    """Executes nothing."""

    def run(self, *_: Any, **__: Any) -> dict[str, str]:
        return {}

    def stop(self) -> None: ...


def until(is_so: Any) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_whoever_waits_is_served_in_the_order_of_points(tmp_path: Path) -> None:
    slots, served = Slots(Nobody(), 1), list[int]()
    numbers = random.Random(1).sample(range(20), 20)

    def step(number: int) -> None:
        with slots.taken(number):
            served.append(number)

    with ThreadPoolExecutor(20) as pool:
        with slots.taken(99):
            for waiting, number in enumerate(numbers):
                pool.submit(step, number)
                until(lambda waiting=waiting: len(slots._waiting) == waiting + 1)
        pool.shutdown(wait=True)
    assert served == sorted(numbers)
    with slots.taken(0):
        pass  # the slot came back


def test_no_more_are_taken_than_there_are_and_all_of_them_come_back() -> None:
    slots, mutex, taken, most = Slots(Nobody(), 3), threading.Lock(), [0], [0]

    def step(number: int) -> None:
        with slots.taken(number):
            with mutex:
                taken[0] += 1
                most[0] = max(most[0], taken[0])
            time.sleep(0.0005)
            with mutex:
                taken[0] -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(step, range(300)))
    assert (taken, most, slots._free) == ([0], [3], 3)


def test_what_waits_when_a_sweep_is_stopped_is_not_begun() -> None:
    slots, begun = Slots(Nobody(), 1), list[int]()

    def step(number: int) -> None:
        with slots.taken(number):
            begun.append(number)

    with ThreadPoolExecutor(5) as pool:
        with slots.taken(0):
            waiting = [pool.submit(step, number) for number in range(1, 5)]
            until(lambda: len(slots._waiting) == 4)
            slots.stop()
        errors = [type(future.exception(timeout=20)) for future in waiting]
    assert (errors, begun) == ([SweepStopped] * 4, [])
    with pytest.raises(SweepStopped, match="was interrupted; run it again to go on"):
        step(9)
