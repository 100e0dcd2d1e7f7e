"""An experiment, or a .tflite file that somebody brings along -> its finished run, with progress where one looks."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.api.console import reporter_for_stderr
from pipeline.api.project import ZOO, AnyPath, make_importable, model_file, open_project
from pipeline.engine.assembly import RunOptions, experiment_runner, model_runner
from pipeline.engine.dag import Node
from pipeline.engine.runner import Outcome, Reporter, Runner
from pipeline.stage import Progress

CORES = os.cpu_count() or 1


class _StepProgress:
    """A tool that takes long, told like a step."""

    def __init__(self, reporter: Reporter, node: Node) -> None:
        self._reporter, self._node = reporter, node

    def start(self, total: int, unit: str) -> None:
        self._reporter.progressed(self._node, {"event": "start", "total": total, "unit": unit})

    def advance(self, count: int = 1, note: str = "") -> None:
        self._reporter.progressed(self._node, {"event": "advance", "count": count, "note": note})


class _Silence:
    """Hears everything and tells nothing."""

    def message(self, text: str) -> None: ...
    def planned(self, steps: int) -> None: ...
    def started(self, node: Node, reason: str) -> None: ...
    def progressed(self, node: Node, event: Mapping[str, Any]) -> None: ...
    def finished(self, node: Node, status: str, seconds: float) -> None: ...


def is_model_file(network: str) -> bool:
    """Or the name of a published one, in contrast to an experiment."""
    return network.endswith(".tflite") or network.startswith(ZOO)


def setting_texts(settings: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """{'prune.epochs': 3} as the command line writes it: 'prune.epochs=3'."""
    if isinstance(settings, Mapping):
        return tuple(f"{key}={json.dumps(value, default=str)}" for key, value in settings.items())
    return tuple(settings)


def finished_run(
    file: Path,
    network: str,
    quick: bool,
    options: RunOptions,
    jobs: int,
    *,
    inputs: AnyPath | None = None,
    labels: AnyPath | None = None,
    progress: bool = True,
) -> tuple[Runner, list[Outcome]]:
    """Run a network to the end; `inputs` and `labels` belong to a file, `quick` to an experiment."""
    make_importable(file)
    with _reporter(progress) as reporter:
        if is_model_file(network):
            brought = [None if path is None else Path(path) for path in (inputs, labels)]
            model = model_file(open_project(file), network) if network.startswith(ZOO) else Path(network)
            runner = model_runner(file, model, brought[0], brought[1], options, reporter, network)
        else:
            runner = experiment_runner(file, network, quick, options, reporter)
        return runner, runner.run(jobs)


@contextlib.contextmanager
def watched(name: str, reason: str, wanted: bool) -> Iterator[Progress]:
    """Progress of a tool that takes long."""
    node, begin = Node(name), time.monotonic()
    with _reporter(wanted) as reporter:
        reporter.planned(1)
        reporter.started(node, reason)
        yield _StepProgress(reporter, node)
        reporter.finished(node, "ran", time.monotonic() - begin)


@contextlib.contextmanager
def _reporter(wanted: bool) -> Iterator[Reporter]:
    """A notebook gets a table that moves, a terminal bars, anything else lines on stderr."""
    if not wanted:
        yield _Silence()
    elif _in_notebook():
        from pipeline.api.notebook import NotebookReporter

        yield NotebookReporter()
    else:
        with reporter_for_stderr() as reporter:
            yield reporter


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None
