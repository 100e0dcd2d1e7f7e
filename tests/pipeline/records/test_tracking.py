"""Runs in an MLflow server, a real one; without it, a warning."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.conftest import ToyProject

HISTORY = '(out_dir / "history.csv").write_text("epoch,loss\\n1,0.5\\n2,0.25\\n")\n    '


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mlflow", reason="needs the extra: pip install 'tinyml-pipeline[mlflow]'")
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder}/all.db", "--artifacts-destination", str(folder / "files")]
    with subprocess.Popen([*command, *store], cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        uri, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 200
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        yield uri
        os.killpg(process.pid, signal.SIGKILL)  # its workers too


def test_a_run_is_found_in_the_server_with_parameters_epochs_and_files(server: str, toy: ToyProject) -> None:
    import mlflow

    toy.edit("toy_mill.py", "return Milled", f"{HISTORY}return Milled")
    toy.edit("pipeline.yaml", "rows: rows}", "rows: rows, files: [table, rows]}")
    said = toy.run("run", "bread", "--track", f"mlflow:{server}").stderr
    assert "tracked as " in said, said
    client = mlflow.MlflowClient(tracking_uri=server)
    found = client.get_experiment_by_name("bread")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    assert run.info.run_name == toy.latest.name and run.info.status == "FINISHED"
    assert run.data.params["mill.rounds"] == "4" and run.data.metrics["stove.price"] == 3
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "mill.loss")] == [
        (1, 0.5),
        (2, 0.25),
    ]
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"run.json", "table.txt", "rows.csv"}


def test_a_server_that_is_down_costs_a_warning(toy: ToyProject) -> None:
    done = toy.run("run", "bread", "--track", f"mlflow:http://127.0.0.1:{free_port()}")
    assert "warning: --track mlflow:" in done.stderr and toy.latest.is_dir()


@pytest.mark.parametrize("text", ["mlflow", "mlflow:", "wandb:x", ""])
def test_a_tracker_that_nobody_knows_is_refused_before_anything_runs(toy: ToyProject, text: str) -> None:
    assert "needed such as mlflow:http" in toy.run("run", "bread", "--track", text, check=2).stderr
    assert not Path(toy.root / "runs").exists()
