"""`--track mlflow:URI`: a finished run in an MLflow server that a lab has already (extra `mlflow`).

Parameters are the resolved configuration, metrics the numbers of every row, and of every epoch where a step kept a
history.csv; the report, the rows and run.json are its artifacts. A server that is down costs a warning, never the run.
"""

from __future__ import annotations

import csv
import importlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.records.store import RECORD, StoredRun

_HISTORY, _EPOCH = "history.csv", "epoch"
_MOST_CHARACTERS = 500  # of a parameter, as MLflow wants it
_MOST_AT_ONCE = 100  # parameters; of metrics it takes ten times as many
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


def check_tracker(text: str) -> str:
    """The address behind `mlflow:`; ConfigError for anything else, before anything runs."""
    kind, colon, uri = text.partition(":")
    if kind != "mlflow" or not colon or not uri:
        raise ConfigError(f"--track {text}: needed such as mlflow:http://localhost:5000")
    return uri


def track(run: StoredRun, uri: str, files: Sequence[Path]) -> str:
    """Log the run; returns what became of it in one sentence, also if that is nothing."""
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        mlflow = importlib.import_module("mlflow")
    except ImportError:
        return "warning: --track mlflow: the package is missing, install it with: pip install 'tinyml-pipeline[mlflow]'"
    try:
        return f"tracked as {_log(mlflow, run, uri, files)} in {uri}"
    except Exception as error:  # noqa: BLE001 - whatever a client or server thinks of: the run is done and kept
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"warning: --track mlflow:{uri}: not tracked ({reason}); the run itself is kept"


def parameters(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """'qat.epochs' -> '2'."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from parameters(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)[:_MOST_CHARACTERS]


def metrics(run: StoredRun) -> Iterator[tuple[str, float, int]]:
    """Name, value and epoch: those of a row have its board before them."""
    for row in run.facts["rows"]:
        for column, text in row.items():
            if (value := _number(text)) is not None:
                yield f"{row.get('board', 'run')}.{column}", value, 0
    for step in run.facts["steps"]:
        for name in step["files"]:
            if Path(name).name == _HISTORY:
                yield from _epochs(step["step"], run.folder / step["folder"] / name)


def _epochs(step: str, path: Path) -> Iterator[tuple[str, float, int]]:
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            epoch = int(float(row.pop(_EPOCH)))
            yield from (
                (f"{step}.{key}", value, epoch) for key, text in row.items() if (value := _number(text)) is not None
            )


def _log(mlflow: Any, run: StoredRun, uri: str, files: Sequence[Path]) -> str:
    client, entities = mlflow.MlflowClient(tracking_uri=uri), importlib.import_module("mlflow.entities")
    known = client.get_experiment_by_name(run.name)
    experiment = client.create_experiment(run.name) if known is None else known.experiment_id
    git = run.facts["git"] or {}
    tags = {"run_id": run.id, "source": str(run.facts["source"]), "command": run.facts["command"]}
    tags |= {"commit": git.get("commit", ""), "mlflow.runName": run.id}
    logged = client.create_run(experiment, run_name=run.id, tags=tags)
    now_ms = int(time.time() * 1000)
    values = [entities.Metric(name, value, now_ms, epoch) for name, value, epoch in metrics(run)]
    settings = [entities.Param(name, value) for name, value in parameters(run.facts["config"])]
    for start in range(0, max(len(values), len(settings)), _MOST_AT_ONCE):
        part = slice(start, start + _MOST_AT_ONCE)
        client.log_batch(logged.info.run_id, metrics=values[part], params=settings[part])
    for path in (run.folder / RECORD, *files):
        client.log_artifact(logged.info.run_id, str(path))
    client.set_terminated(logged.info.run_id, "FINISHED")
    return str(logged.info.run_id)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
