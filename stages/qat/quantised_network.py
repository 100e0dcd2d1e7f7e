"""From network.pt to a fake-quant network, and from there to qat.pt.

qat.pt holds only plain values and tensors (torch.load with weights_only): `graph`, the float graph with its trained
weights and a grid on every tensor, and `test_classes`, what the float and the fake-quant network say about each test
sample, so that export can state how often int8 agrees.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from pipeline.errors import StageError
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.record import graph_to_record
from stages.nets.registry import Architecture
from stages.qat.config import QatConfig
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.training import EVALUATED_AT_ONCE
from stages.training.evaluation import accuracy, predictions
from stages.training.examples import Examples

USUAL = QatConfig()


@dataclass(frozen=True)
class Measured:
    """Accuracy on the held-out splits, and the class of each test sample."""

    accuracies: dict[str, float]
    test_classes: Tensor


def fake_quant_network(architecture: Architecture, weights: Path, config: QatConfig = USUAL) -> FakeQuantNetwork:
    """The pruned float network, batch normalisation folded, ready to be calibrated."""
    network = architecture.build()
    try:
        network.load_state_dict(torch.load(weights, weights_only=True))
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise StageError(f"{weights}: does not fit the architecture ({reason}); run prune again") from error
    return FakeQuantNetwork(
        graph_from_torch(network.eval(), architecture.input_shape),
        percentile=config.percentile if config.ranges == "percentile" else None,
        learns_ranges=config.ranges == "learned",
    )


def measured(network: FakeQuantNetwork, examples: Examples, *, quantises: bool) -> Measured:
    """How good the network is on data it was not trained on, with or without rounding."""
    splits = {"validation": examples.validation, "test": examples.test}
    with nullcontext() if quantises else network.without_rounding():
        classes = {name: predictions(network, network, split.x, EVALUATED_AT_ONCE) for name, split in splits.items()}
    accuracies = {name: accuracy(found, splits[name].y) for name, found in classes.items()}
    return Measured(accuracies, classes["test"])


def save_quantised(path: Path, network: FakeQuantNetwork, before: Measured, after: Measured) -> Path:
    """Write qat.pt."""
    classes = {"float": before.test_classes, "fake_quant": after.test_classes}
    torch.save({"graph": graph_to_record(network.quantised_graph()), "test_classes": classes}, path)
    return path
