"""export: turn the fine-tuned network into an int8 .tflite whose op order and arena layout need the least RAM.

Reads   features (.npy splits), dataset.json, qat.pt; with `exporter: litert` also network.pt and architecture.json
Writes  model.tflite, plan.json, memory.json, accuracy.json, predictions.csv, layer_error.csv, golden.npz
Fails   StageError, naming the op, when TensorFlow Lite Micro and our integer reference differ in any bit; when LiteRT's
        converter, if asked, finds another float network than we do
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.stage import Config, Progress, read_json, stage, write_json


class ExportConfig(Config):
    """How much is checked."""

    exporter: Literal["own", "litert"] = "own"  # litert: ours, and its float graph compared with litert-torch's
    golden_samples: int = Field(default=32, ge=1)  # test samples in golden.npz, besides two extreme inputs


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What export makes."""

    model: Path  # model.tflite: full int8, best op order, arena plan and task (classes, front end) in its metadata
    plan: Path  # plan.json: order, offsets, arena, peak, size, MACs
    memory: Path  # memory.json: where every activation lies, and when
    accuracy: Path  # accuracy.json: on the whole test split
    predictions: Path  # predictions.csv: the chosen class of every test example
    layer_error: Path  # layer_error.csv: per op, how far int8 is from float
    golden: Path  # golden.npz: inputs, the outputs that TensorFlow Lite Micro gives, labels


@stage("export", packages=("ai-edge-litert", "tflite-micro", "flatbuffers", "torch", "numpy", "ortools"))
def run(
    features: Path,
    dataset: Path,
    network: Path,
    architecture: Path,
    qat_network: Path,
    *,
    config: ExportConfig,
    out_dir: Path,
    progress: Progress,
) -> Exported:
    import numpy as np

    from stages.export.evaluation import (
        golden_inputs,
        int8_classes,
        load_test_split,
        measured_accuracy,
        write_predictions,
    )
    from stages.export.float_check import check_with_litert
    from stages.export.layer_error import layer_errors, write_layer_errors
    from stages.export.planned_model import planned_model, verify
    from stages.export.quantise import int8_graph, load_qat
    from stages.graph.judge.tflm import run_tflm
    from stages.graph.memory.memory_record import memory_record
    from stages.graph.memory.plan_record import plan_record
    from stages.graph.tflite.task import task_note, task_of

    progress.start(5, "step")
    trained = load_qat(qat_network)
    task = task_of(read_json(dataset))
    model = planned_model(int8_graph(trained.graph), "int8 network of tinyml-pipeline", task_note(task))
    progress.advance(note=f"arena {model.layout.arena_bytes} B")
    split = load_test_split(features, model.graph)
    golden = golden_inputs(split, config.golden_samples)
    verify(model, golden.inputs)
    progress.advance(note="equal to TFLM")
    check = check_with_litert(network, architecture, features) if config.exporter == "litert" else None
    progress.advance(note=check.sentence if check else "")
    chosen = int8_classes(model.graph, split)
    accuracy = measured_accuracy(chosen, split, task.classes, trained.float_classes, trained.fake_quant_classes)
    progress.advance(note=accuracy.warning or f"int8 accuracy {accuracy.accuracy_int8:.4f}")
    errors = layer_errors(trained.graph, model.graph, golden.inputs[golden.labels >= 0])
    outputs = run_tflm(model.content, model.graph, golden.inputs)
    np.savez(out_dir / "golden.npz", inputs=golden.inputs, outputs=outputs, labels=golden.labels)
    (out_dir / "model.tflite").write_bytes(model.content)
    progress.advance()
    return Exported(
        model=out_dir / "model.tflite",
        plan=write_json(
            out_dir / "plan.json",
            plan_record(model.graph, model.layout, model.order, model.order_proven_optimal),
        ),
        memory=write_json(out_dir / "memory.json", memory_record(model.graph, model.layout)),
        accuracy=write_json(out_dir / "accuracy.json", {**asdict(accuracy), "litert": check and asdict(check)}),
        predictions=write_predictions(out_dir / "predictions.csv", split, chosen, trained.float_classes),
        layer_error=write_layer_errors(out_dir / "layer_error.csv", errors),
        golden=out_dir / "golden.npz",
    )
