"""A network that somebody brings along: `pipeline measure MODEL.tflite`."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.bring.golden import golden_inputs, labelled, pinned_bytes
from stages.bring.stage import BringConfig, BroughtFile, run
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import residual_network

ROOT = Path(__file__).resolve().parents[3]
KEYS = [
    "board",
    "source",
    "n",
    "instructions",
    "cycles_modelled",
    "cycles_zero_wait",
    "latency_ms_modelled",
    "macs",
    "macs_executed",
    "arena_bytes",
    "flash_bytes",
    "ram_bytes",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("brought") / "small.tflite"
    path.write_bytes(write_tflite(residual_network(3), "a small network"))
    return path


def pipeline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "pipeline.yaml", folder)
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_brought_network_is_measured_on_a_twin_and_equals_tflm(model, tmp_path):
    shape = read_tflite(model).tensors[read_tflite(model).inputs[0]].shape[1:]
    np.save(tmp_path / "x.npy", np.random.default_rng(5).integers(-128, 128, (4, *shape), np.int8))
    arguments = (
        "measure",
        str(model),
        "--board",
        "nucleo_h743zi2",
        "--virtual",
        "--out",
        "out",
        "--runs",
        "5",
        "--json",
    )
    done = pipeline(tmp_path, *arguments, "--inputs", "x.npy")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert list(record) == [*KEYS, "energy_mj_simulated"]
    assert (record["board"], record["source"], record["n"]) == ("nucleo_h743zi2", "virtual", 5)
    assert record["latency_ms_modelled"] == pytest.approx(record["cycles_modelled"] / 480e3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "accuracy_device.json",
        "device.json",
        "devices.yaml",
        "firmware.bin",
        "firmware.elf",
        "firmware.hex",
        "footprint.json",
        "layers.csv",
        "outputs.npz",
        "power.npz",
        "samples.csv",
        "twin.elf",
    ]
    rows = list(csv.DictReader((tmp_path / "out" / "samples.csv").read_text().splitlines()))
    assert {row["experiment"] for row in rows} == {"small"}
    assert len(np.load(tmp_path / "out" / "outputs.npz")["outputs"]) == 4


@pytest.mark.slow
def test_accuracy_of_labelled_inputs_is_measured_on_the_device(model, tmp_path):
    content, graph = model.read_bytes(), read_tflite(model)
    inputs = golden_inputs(graph, None, 38, seed=7)
    classes = run_tflm(content, graph, inputs).reshape(len(inputs), -1).argmax(axis=1)
    classes[:10] += 1  # a quarter of the labels is wrong
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", classes)
    where = ("--board", "nucleo_f767zi", "--virtual", "--runs", "1")
    asked = ("--inputs", "x.npy", "--labels", "y.npy", "--accuracy", "40", "--json")
    done = pipeline(tmp_path, "measure", str(model), *where, *asked)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["accuracy_n"], record["accuracy_device"], record["accuracy_host"]) == (40, 0.75, 0.75)
    assert record["differences"] == []
    assert re.search(r"every file is in runs/small/\d{8}-\d{6}-[0-9a-f]{4}/", done.stderr)


def test_accuracy_without_labels_is_refused_before_anything_runs(model, tmp_path):
    where = ("--board", "nucleo_f767zi", "--virtual")
    for arguments, sentence in (
        ((str(model), "--accuracy", "5"), "--accuracy: a .tflite file brings no test set; add --inputs X.npy and"),
        (("kws_dscnn_s", "--labels", "y.npy"), "--inputs, --labels: an experiment has its own test set"),
    ):
        done = pipeline(tmp_path, "measure", *arguments, *where)
        assert done.returncode == 2
        assert done.stderr.startswith(sentence)


def test_labels_must_be_one_whole_number_per_input(tmp_path):
    inputs = np.zeros((3, 2, 2, 1), np.int8)
    np.save(tmp_path / "y.npy", np.array([2, 0, 1]))
    assert labelled(inputs, (tmp_path / "y.npy").read_bytes()).tolist() == [2, 0, 1]
    assert labelled(inputs, None).tolist() == []
    for wrong in (np.zeros(2, np.int64), np.zeros(3)):
        np.save(tmp_path / "y.npy", wrong)
        with pytest.raises(StageError, match=r"--labels: found .*, needed whole numbers \(3,\)"):
            labelled(inputs, (tmp_path / "y.npy").read_bytes())
    with pytest.raises(StageError, match="--labels: not a .npy file"):
        labelled(inputs, b"nonsense")


def test_a_missing_or_damaged_model_is_one_sentence(tmp_path):
    absent = pipeline(tmp_path, "measure", "no.tflite", "--board", "nucleo_f767zi", "--virtual", "--out", "out")
    assert (absent.returncode, absent.stderr) == (
        2,
        "no.tflite: cannot be read (No such file or directory); check the path\n",
    )
    (tmp_path / "bad.tflite").write_bytes(b"not a model")
    damaged = pipeline(tmp_path, "measure", "bad.tflite", "--board", "nucleo_f767zi", "--virtual", "--out", "out")
    assert damaged.returncode == 1
    assert damaged.stderr.splitlines()[-1].startswith("bring: bad.tflite: not a .tflite file (11 B")
    assert not (tmp_path / "out").exists()


def test_random_golden_inputs_end_with_the_extremes(model):
    graph = read_tflite(model)
    inputs = golden_inputs(graph, None, 3, seed=0)
    assert inputs.shape[0] == 5
    assert (inputs[-2] == -128).all() and (inputs[-1] == 127).all()
    assert np.array_equal(inputs, golden_inputs(graph, None, 3, seed=0))


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((2, 3), np.int8), r"found int8 \(2, 3\), needed int8 \(N, "),
        (np.zeros((2, 8, 8, 4), np.float32), "found float32"),
    ],
)
def test_inputs_of_another_shape_or_type_are_refused(model, tmp_path, array, sentence):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(StageError, match=sentence):
        golden_inputs(read_tflite(model), (tmp_path / "x.npy").read_bytes(), 3, seed=0)


def test_inputs_without_any_or_in_another_form_are_refused(model, tmp_path):
    graph = read_tflite(model)
    shape = graph.tensors[graph.inputs[0]].shape[1:]
    np.save(tmp_path / "x.npy", np.ones((2, *shape), np.int8))
    assert (golden_inputs(graph, (tmp_path / "x.npy").read_bytes(), 3, seed=0) == 1).all()
    np.savez(tmp_path / "archive.npz", np.zeros((2, *shape), np.int8))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "none.npy", np.zeros((0, *shape), np.int8))
    np.save(tmp_path / "floats.npy", np.zeros((2, *shape), np.float32))
    for name, sentence in (
        ("archive.npz", "found an archive, needed one array"),
        ("objects.npy", "--inputs: not a .npy file"),
        ("none.npy", "with N >= 1"),
        ("floats.npy", "found float32"),
    ):
        with pytest.raises(StageError, match=sentence):
            golden_inputs(graph, (tmp_path / name).read_bytes(), 3, seed=0)


def brought(path: Path) -> BroughtFile:
    return BroughtFile(path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_network_is_brought_with_golden_values_and_without_a_test_set(model, tmp_path):
    files = run.function(config=BringConfig(model=brought(model)), out_dir=tmp_path)
    golden, graph = np.load(files.golden), read_tflite(model)
    np.testing.assert_array_equal(golden["inputs"], golden_inputs(graph, None, 8, seed=0))
    np.testing.assert_array_equal(golden["outputs"], run_tflm(model.read_bytes(), graph, golden["inputs"]))
    assert (golden["inputs"][:8].min(), golden["inputs"][:8].max()) == (-128, 127), "the whole range is drawn"
    assert files.model.read_bytes() == model.read_bytes()
    assert len(np.load(files.features / "test_x.npy")) == len(np.load(files.features / "test_y.npy")) == 0


def test_labelled_inputs_are_a_test_set_and_some_of_them_golden(model, tmp_path):
    inputs, classes = golden_inputs(read_tflite(model), None, 38, seed=7), np.arange(40)
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", classes)
    given = dict(inputs=brought(tmp_path / "x.npy"), labels=brought(tmp_path / "y.npy"))
    files = run.function(config=BringConfig(model=brought(model), **given), out_dir=tmp_path)
    np.testing.assert_array_equal(np.load(files.golden)["inputs"], inputs[:32])
    np.testing.assert_array_equal(np.load(files.features / "test_x.npy"), inputs)
    np.testing.assert_array_equal(np.load(files.features / "test_y.npy"), classes)


def test_a_file_that_changes_during_the_run_is_refused(tmp_path):
    (tmp_path / "m.tflite").write_bytes(b"one")
    with pytest.raises(StageError, match="changed while the command ran"):
        pinned_bytes(tmp_path / "m.tflite", "0" * 64)
