"""Work spread over processes, results in order.

The processes are forked, so they see the data set and the mapped output files without anything being copied. What a
task computes must depend on its number alone; then the number of processes changes nothing but the time.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, TypeVar

from pipeline.errors import StageError

Result = TypeVar("Result")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_TASK: list[Callable[[int], Any]] = []  # what a forked process finds to do; a closure cannot be sent to it


def spread(task: Callable[[int], Result], count: int, workers: int | None = None) -> Iterator[Result]:
    """task(0), task(1), ... computed by several processes."""
    processes = min(workers or len(os.sched_getaffinity(0)), count)
    if processes <= 1:
        yield from map(task, range(count))
        return
    _TASK.append(task)
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin) as pool:
            chunk = max(1, min(4, count // (4 * processes)))
            yield from pool.map(_perform, range(count), chunksize=chunk)
    except BrokenProcessPool as error:
        raise StageError(
            "prepare: a worker process was killed; was there enough memory? run again with fewer programs beside it"
        ) from error
    finally:
        _TASK.pop()


def _perform(number: int) -> Any:
    return _TASK[-1](number)


def _begin() -> None:
    """One thread for torch, as everywhere in prepare; and an end when the parent is killed."""
    import torch

    torch.set_num_threads(1)
    _keep_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _keep_memory() -> None:
    """Let malloc keep what is freed; else each array of megabytes is new pages, a third of the time of an int8 network.

    glibc's own settings (mallopt(3)), in this process alone; other C libraries have none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        if mallopt is not None:
            mallopt(setting, 1 << 30)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
