"""One network, as a .tflite file or as torch module -> what it needs, a better file, a C library, a measurement.

The work is done by the functions that `tools` and `model_steps` in pipeline.yaml name; here are their arguments, with
types. Mistakes of the caller are ConfigError, whatever else is to be expected another PipelineError: one sentence each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.api.execution import CORES, finished_run, is_model_file, setting_texts, watched
from pipeline.api.project import AnyPath, existing, model_file, open_project
from pipeline.api.results import Compilation, Evaluation, Inspection, Measurement, Optimization, Resources
from pipeline.config import PROJECT_FILE, model_experiment
from pipeline.engine.assembly import RunOptions, load_experiments
from pipeline.engine.dag import load_steps, section_models
from pipeline.errors import ConfigError
from pipeline.stage import Answer

if TYPE_CHECKING:
    from torch import nn

Weights = Literal["fast", "small"]
Runtime = Literal["overlap", "classic"]


def inspect(model: AnyPath, *, svg: AnyPath | None = None, project: AnyPath = PROJECT_FILE) -> Inspection:
    """Ops, size, MACs and memory of a .tflite: as stored, in the best order, and the lower bound.

    `svg` draws memory over time into a file.
    """
    opened = open_project(project)
    return Inspection.of(opened.tool("inspect")(model_file(opened, model), None if svg is None else Path(svg)))


def optimize(model: AnyPath, out: AnyPath, *, project: AnyPath = PROJECT_FILE) -> Optimization:
    """Re-order a .tflite and plan its arena so that it needs the least memory; outputs stay bit-identical."""
    opened = open_project(project)
    answer = opened.tool("optimize")(model_file(opened, model), Path(out))
    return Optimization.of(answer, model=Path(out))


def compile(
    model: AnyPath,
    out: AnyPath,
    *,
    weights: Weights = "fast",
    runtime: Runtime = "overlap",
    project: AnyPath = PROJECT_FILE,
) -> Compilation:
    """Turn a .tflite into the folder `out` of C for any Cortex-M7 project, and for the host.

    `weights`: fast (int16) or small (int8). `runtime`: overlap (outputs over inputs, row-wise fusion) or classic.
    """
    opened = open_project(project)
    answer = opened.tool("compile")(model_file(opened, model), Path(out), weights, runtime)
    return Compilation.of(answer, folder=Path(out))


def evaluate(
    model: AnyPath,
    data: str,
    *,
    split: str = "test",
    out: AnyPath | None = None,
    task: AnyPath | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    set: Mapping[str, Any] | Sequence[str] = (),
    progress: bool = True,
    project: AnyPath = PROJECT_FILE,
) -> Evaluation:
    """Accuracy of an int8 .tflite on one split of a data set (`data.source`), with the runtime's own arithmetic.

    `set` as in {"data.root": FOLDER}. `out` keeps evaluation.csv, classes.csv, confusion.csv and predictions.csv. A
    file that does not say what it was trained with needs `task`, a dataset.json, or `mean` and `std` of its pictures.
    """
    opened = open_project(project)
    models = section_models(load_steps(opened.steps))
    asked = model_experiment(
        opened, "evaluate", {"data": {"source": data}}, setting_texts(set), {"data": models["data"]}
    )
    file, folder = model_file(opened, model), None if out is None else Path(out)
    with watched("evaluate", f"{data}, {split} split", progress) as told:
        answer = opened.tool("evaluate")(
            file, asked.sections["data"], split, told, folder, None if task is None else existing(task), mean, std
        )
    return Evaluation.of(answer)


def import_keras(model: AnyPath, data: AnyPath, out: AnyPath, *, project: AnyPath = PROJECT_FILE) -> Answer:
    """Turn a Keras model into a full-int8 .tflite, with representative inputs in `data` (needs the extra `tf`)."""
    return open_project(project).tool("import")(existing(model), existing(data), Path(out))


def resources(
    network: nn.Module | str,
    input_shape: Sequence[int] | None = None,
    *,
    budget: Mapping[str, int | str] | None = None,
    board: str | None = None,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    project: AnyPath = PROJECT_FILE,
) -> Resources:
    """Size, peak memory and MACs, as int8, of a torch module (`input_shape`: height, width, channels) or an experiment.

    `budget` such as {"peak_bytes": "64KB", "macs": "5M"} belongs to a module: an experiment has its own. With `board`,
    an experiment's network is compiled for it, and `record["board"]` has its layers' modelled ms and mJ, flash and RAM.
    """
    opened = open_project(project)
    if not isinstance(network, str):
        if input_shape is None:
            raise ConfigError("resources: found a module alone, needed its input_shape, too: (height, width, channels)")
        return Resources.beside(opened.tool("module_resources")(network, tuple(input_shape), dict(budget or {})))
    if input_shape is not None or budget is not None:
        raise ConfigError(f"resources: experiment {network!r} has its own input shape and budget; leave them out")
    (loaded,) = load_experiments(opened, [network], quick=quick, settings=setting_texts(set))
    network_and_budget = (loaded.sections[name] for name in ("network", "budget"))
    there = {} if board is None else {"firmware": loaded.sections["firmware"], "board": board}
    return Resources.beside(opened.tool("resources")(*network_and_budget, **there))


def fit(
    experiment: str,
    board: str,
    *,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    project: AnyPath = PROJECT_FILE,
) -> Answer:
    """The smallest budgets that the experiment's network can meet on a board, and the widest network that fits it."""
    opened = open_project(project)
    (loaded,) = load_experiments(opened, [experiment], quick=quick, settings=setting_texts(set))
    return opened.tool("fit")(*(loaded.sections[name] for name in ("network", "firmware", "prune")), board)


def measure(
    network: AnyPath,
    board: str,
    *,
    virtual: bool = False,
    out: AnyPath | None = None,
    inputs: AnyPath | None = None,
    labels: AnyPath | None = None,
    accuracy: int = 0,
    runs: int = 30,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    jobs: int = CORES,
    progress: bool = True,
    project: AnyPath = PROJECT_FILE,
) -> Measurement:
    """Run a .tflite, or the network of an experiment, on a board or its twin; outputs must equal TFLM's.

    `inputs` (int8, .npy) and `labels` belong to a file, `quick` to an experiment; `accuracy` sends so many test inputs;
    `out` keeps samples.csv, layers.csv, outputs.npz and device.json, the images, and the MLPerf Tiny runner's files.
    """
    name, folder = str(network), None if out is None else Path(out)
    if is_model_file(name) and accuracy and labels is None:
        raise ConfigError("--accuracy: a .tflite file brings no test set; add --inputs X.npy and --labels Y.npy")
    if not is_model_file(name) and (inputs or labels):
        raise ConfigError(
            "--inputs, --labels: an experiment has its own test set; give a .tflite file or leave them out"
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder}: is a file, needed a folder; choose another name")
    asked = (f"measure.runs={runs}", f"measure.accuracy_inputs={accuracy}")
    options = RunOptions(boards=(board,), virtual=virtual, settings=(*asked, *setting_texts(set)))
    runner, outcomes = finished_run(
        Path(project), name, quick, options, jobs, inputs=inputs, labels=labels, progress=progress
    )
    entries = {outcome.node.step: outcome.entry for outcome in outcomes}
    answer = runner.project.tool("measured")({step: entry.folder for step, entry in entries.items()})
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        runner.project.tool("keep")({step: entry.folder for step, entry in entries.items()}, folder)
    measured = runner.record.folder / next(
        outcome.node.folder for outcome in outcomes if outcome.node.step == "measure"
    )
    return Measurement.of(answer, folder=folder or measured, run_folder=runner.record.folder)
