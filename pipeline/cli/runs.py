"""An experiment, or a .tflite file that somebody brings along -> its finished run; progress on stderr."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli.console import reporter_for_stderr
from pipeline.cli.options import chosen
from pipeline.engine.assembly import RunOptions, experiment_runner, model_runner
from pipeline.engine.runner import Outcome, Runner


def is_model_file(network: str) -> bool:
    return network.endswith(".tflite")


def finished_run(
    network: str, quick: bool, options: RunOptions, jobs: int, inputs: Path | None = None, labels: Path | None = None
) -> tuple[Runner, list[Outcome]]:
    """Run a network to the end; `inputs` and `labels` belong to a file, `quick` to an experiment."""
    with reporter_for_stderr() as reporter:
        if is_model_file(network):
            runner = model_runner(chosen.file, Path(network), inputs, labels, options, reporter)
        else:
            runner = experiment_runner(chosen.file, network, quick, options, reporter)
        return runner, runner.run(jobs)
