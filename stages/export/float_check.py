"""`exporter: litert`: another converter is asked whether the Graph is the network that prune left."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch

from pipeline.errors import StageError
from stages.graph.from_torch import graph_from_torch
from stages.graph.litert_export import FloatCheck, check_float_graph
from stages.nets.registry import read_architecture

_SAMPLES = 16


def check_with_litert(weights: Path, architecture: Path, features: Path) -> FloatCheck:
    """Compare on test samples; StageError when the two differ by more than rounding."""
    shape = read_architecture(architecture)
    network = shape.build().eval()
    try:
        network.load_state_dict(torch.load(weights, weights_only=True))
        inputs = np.load(features / "test_x.npy", mmap_mode="r")[:_SAMPLES]
    except (OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise StageError(f"{weights} or {features}: cannot be read ({reason}); run prune again") from error
    samples = np.asarray(inputs, np.float32).reshape(-1, *shape.input_shape)
    return check_float_graph(network, graph_from_torch(network, shape.input_shape), samples)
