"""bring: take a .tflite that somebody made elsewhere into the pipeline, with golden values from TensorFlow Lite Micro.

Reads   the file that the configuration names, and perhaps inputs for it (.npy, int8, first axis: which input) with the
        class of each (.npy)
Writes  model.tflite, golden.npz (inputs, outputs), features/ (test_x.npy, test_y.npy; empty without classes),
        plan.json and memory.json (as the file stands, every tensor whole)
Fails   StageError when a file changed since it was named, is damaged, or holds an operator that we cannot run
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from pipeline.stage import Config, stage, write_json


class BroughtFile(Config):
    """A file outside the project; its digest makes it part of the cache key."""

    path: Path
    sha256: str


class BringConfig(Config):
    """What is brought along."""

    model: BroughtFile
    inputs: BroughtFile | None = None
    labels: BroughtFile | None = None  # the class of each input: makes a test set of them
    random_inputs: int = Field(default=8, ge=1)  # golden inputs where none are given; two extreme ones come on top
    golden_of_labelled: int = Field(default=32, ge=1)  # golden ones among labelled inputs, which may be many
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Brought:
    model: Path  # model.tflite, int8 in and out
    golden: Path  # golden.npz: inputs, and the outputs that TensorFlow Lite Micro gives
    features: Path  # test_x.npy (int8), test_y.npy
    plan: Path  # plan.json: size, MACs, memory
    memory: Path  # memory.json: where every activation lies, and when


@stage("bring", packages=("ai-edge-litert", "tflite-micro", "flatbuffers", "numpy", "ortools"))
def run(*, config: BringConfig, out_dir: Path) -> Brought:
    import numpy as np

    from stages.bring.golden import golden_inputs, labelled, pinned_bytes
    from stages.graph.ends import STATE_RUNS
    from stages.graph.judge.tflm import accepts, run_tflm, run_tflm_rows
    from stages.graph.memory.arena_layout import arena_layout
    from stages.graph.memory.memory_record import memory_record
    from stages.graph.memory.plan_record import plan_record
    from stages.graph.tflite.float_edges import require_int8
    from stages.graph.tflite.planned_file import without_float_edges
    from stages.graph.tflite.reader import read_tflite
    from stages.graph.tflite.writer import write_tflite

    file = config.model
    content = without_float_edges(pinned_bytes(file.path, file.sha256), name=file.path.name)
    graph = read_tflite(content, name=file.path.name)
    require_int8(graph, file.path.name)
    may_pad = any(op.kind == "SPACE_TO_BATCH_ND" for op in graph.ops)  # with anything, see folding
    if may_pad or not accepts(content, graph):  # perhaps for what was folded: then what was read is what it runs
        content = write_tflite(graph, file.path.name)
    given, classes = (
        None if file is None else pinned_bytes(file.path, file.sha256) for file in (config.inputs, config.labels)
    )
    inputs = golden_inputs(graph, given, config.random_inputs, config.seed)
    features = out_dir / "features"
    features.mkdir()
    tested = labelled(inputs, classes)
    np.save(features / "test_x.npy", inputs[: len(tested)])
    np.save(features / "test_y.npy", tested)
    golden = inputs if classes is None else inputs[: config.golden_of_labelled]
    runs = STATE_RUNS if graph.states else 1
    ends = [graph.tensors[index] for index in (*graph.inputs, *graph.outputs)]
    is_plain = len(ends) == 2 and runs == 1 and all(tensor.shape[:1] == (1,) for tensor in ends)
    outputs = run_tflm(content, graph, golden) if is_plain else run_tflm_rows(content, graph, golden, runs)
    np.savez(out_dir / "golden.npz", inputs=golden, outputs=outputs, **({} if is_plain else {"runs": np.array(runs)}))
    (out_dir / "model.tflite").write_bytes(content)
    layout = arena_layout(graph)
    return Brought(
        model=out_dir / "model.tflite",
        golden=out_dir / "golden.npz",
        features=features,
        plan=write_json(out_dir / "plan.json", plan_record(graph, layout, range(len(graph.ops)), False)),
        memory=write_json(out_dir / "memory.json", memory_record(graph, layout)),
    )
