"""The Python API: what notebooks and scripts call gives typed results with tables, by the code of the command line."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from torch import nn

import pipeline
from stages.graph.tflite.writer import write_tflite
from tests.pipeline.conftest import ToyProject
from tests.stages.graph.int8_graphs import residual_network

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.tflite").write_bytes(write_tflite(residual_network(0), "test"))
    return Path("net.tflite")


def json_of(*arguments: str) -> object:
    argv = [sys.executable, "-m", "pipeline.cli", *arguments, "--json"]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def test_public_names_are_the_same_for_python_and_for_type_checkers() -> None:
    stub = ast.parse((ROOT / "pipeline" / "__init__.pyi").read_text())
    typed = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(pipeline.__all__) == set(dir(pipeline))
    for name in pipeline.__all__:
        assert getattr(pipeline, name).__doc__, f"{name} is documented"
    with pytest.raises(AttributeError, match="no attribute 'inspct'; public are "):
        pipeline.inspct  # noqa: B018


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, pipeline, pipeline.errors; print([n for n in sys.modules if n.startswith('pipeline.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['pipeline.errors']\n"


def test_inspect_gives_what_the_command_prints(network: Path) -> None:
    found = pipeline.inspect(network, svg="memory.svg")
    record = json_of("inspect", str(network))
    assert found.record == record and Path("memory.svg").read_text().startswith("<svg")
    assert isinstance(found.ops, pd.DataFrame) and found.ops["macs"].sum() == found.macs > 0
    assert found.lower_bound_bytes <= found.arena_bytes and found.peak_bytes <= found.peak_bytes_stored
    assert found._repr_html_().startswith("<pre>net.tflite: ") and "net.tflite" not in repr(found)


def test_optimize_and_compile_say_where_their_work_is(network: Path) -> None:
    better = pipeline.optimize(network, "better.tflite")
    assert better.model == Path("better.tflite") and better.model.stat().st_size > 1000
    assert better.arena_bytes <= better.arena_bytes_before
    made = pipeline.compile(better.model, "made", weights="small")
    assert (made.folder / "CMakeLists.txt").exists() and made.ram_bytes == made.arena_bytes + made.scratch_bytes


def test_measure_on_a_twin_gives_samples_and_layers(network: Path) -> None:
    found = pipeline.measure(network, "nucleo_f767zi", virtual=True, runs=3, out="seen", progress=False)
    assert (found.source, found.n, found.latency_ms) == ("virtual", 3, None)
    assert found.instructions is not None and found.instructions > found.macs
    assert len(found.samples) == 3 and found.layers["macs"].sum() == found.macs
    assert found.folder == Path("seen") and (found.run_folder / "firmware-nucleo_f767zi" / "firmware.elf").exists()


def test_resources_of_anybodys_module(network: Path) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    found = pipeline.resources(module, (8, 8, 3), budget={"macs": "10K", "size_bytes": "1KB"})
    assert found.size_bytes == 8 * 27 + 8 * 4 + 8 * 2 + 2 * 4
    assert found.macs == 8 * 8 * 8 * 27 + 8 * 8 * 8 + 16
    assert found.budget == {"macs": 10_000, "size_bytes": 1000} and not found.fits
    assert pipeline.resources(module, (8, 8, 3)).fits, "no budget, nothing to miss"


def test_resources_of_an_experiment(network: Path) -> None:
    found = pipeline.resources("kws_dscnn_s", quick=True, set={"network.width": 64})
    assert found.record == json_of("resources", "kws_dscnn_s", "--quick", "--set", "network.width=64")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: pipeline.inspect("nowhere.tflite"), "nowhere.tflite: no such file; check the path"),
        (lambda: pipeline.resources(nn.Flatten()), "found a module alone, needed its input_shape, too"),
        (lambda: pipeline.resources("kws_dscnn_s", (1, 1, 1)), "has its own input shape and budget; leave them out"),
        (
            lambda: pipeline.resources(nn.Flatten(), (4, 4, 3), budget={"macs": "many"}),
            "budget.macs: ",
        ),
        (
            lambda: pipeline.run("kws_dscnn_s", set={"prune.epoch": 3}, progress=False),
            "prune.epoch: unknown key; did you mean 'epochs'?",
        ),
        (
            lambda: pipeline.measure("kws_dscnn_s", "nucleo_f767zi", inputs="x.npy"),
            "an experiment has its own test set",
        ),
    ],
)
def test_a_mistake_is_one_sentence(network: Path, call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(pipeline.ConfigError) as caught:
        call()
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


SCRIPT = """
import pipeline
done = pipeline.run("bread", quick=True, set={"sell.price": 7})
assert (done.experiment, done.quick, done.folder.parent.name) == ("bread", True, "bread-quick"), done
assert done.folder.name == done.id
assert list(done.summary["price"]) == [7, 7] and list(done.summary["board"]) == ["stove", "kiln"], done.summary
assert done.text.startswith("bread\\n") and str(done) == done.text and "bread" in done._repr_html_()
assert list(done.steps["status"]) == ["ran"] * 5, done.steps
again = pipeline.run("bread", quick=True, set=["sell.price=7"], progress=False)
assert set(again.steps["status"]) == {"cached"}, again.steps
print(done.model)
"""


def test_run_gives_the_tables_of_the_run(toy: ToyProject) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=toy.root, env=toy.env(), capture_output=True, text=True)
    assert ran.stderr.count("sell: ") == 2, "of the first run: started and done; the second one was asked to be silent"
    assert "pipeline.errors.ConfigError: bread: this run made no model, it made corn, " in ran.stderr.splitlines()[-1]
