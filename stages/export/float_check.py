"""`exporter: litert`: another converter is asked whether the Graph is the network that prune left."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch

from data.examples.stored import stored_split
from pipeline.errors import StageError
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.other_formats.litert_export import FloatCheck, check_float_graph
from stages.nets.registry import read_architecture

_SAMPLES = 100  # of the test split to compare, of the training split to calibrate


def check_with_litert(weights: Path, architecture: Path, features: Path) -> FloatCheck:
    """Compare on test samples; StageError when the two differ by more than rounding."""
    shape = read_architecture(architecture)
    network = shape.build().eval()
    try:
        network.load_state_dict(torch.load(weights, weights_only=True))
        tested, trained = (stored_split(features, name)[:_SAMPLES] for name in ("test", "train"))
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise StageError(f"{weights} or {features}: cannot be read ({reason}); run prune again") from error
    inputs, calibration = (np.asarray(x, np.float32).reshape(-1, *shape.input_shape) for x in (tested, trained))
    return check_float_graph(network, graph_from_torch(network, shape.input_shape), inputs, calibration)
