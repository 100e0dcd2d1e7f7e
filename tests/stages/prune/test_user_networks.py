"""Users' own torch code through the whole prune step: usual ways of writing a forward are pruned, others are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.errors import PipelineError
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build, read_architecture
from tests.stages.prune.prune_runs import metrics_of, prune

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn

def convolution(inputs, outputs, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, groups=groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = convolution(1, 8), convolution(8, 8), nn.Linear(8, 3)
        LAYERS
    def forward(self, x, mask=None):
        BODY

def make():
    return Net()
"""
HEAD = "return self.fc(self.b(self.a(x)).mean((2, 3)))"
UNDERSTOOD = {
    "view_of_a_map": (
        "self.fc = nn.Linear(8 * 18, 3)",
        "x = F.max_pool2d(self.b(self.a(x)), 2)\n        return self.fc(x.view(x.size(0), -1))",
    ),
    "multiplier_behind_a_concatenation": (
        "self.d, self.e = convolution(16, 32, groups=16), convolution(32, 8)",
        "x = self.a(x)\n        x = self.e(self.d(torch.cat([x, self.b(x)], 1)))\n"
        "        return self.fc(x.mean((2, 3)))",
    ),
    "pool_of_the_whole_map": (
        "",
        "x = self.b(self.a(x))\n        x = F.avg_pool2d(x, x.shape[2:])\n"
        "        return self.fc(x.view(x.size(0), -1))",
    ),
    "pool_of_a_computed_size": (
        "",
        "x = self.b(self.a(x))\n        x = F.avg_pool2d(x, (x.size(2), x.size()[3]))\n"
        "        return self.fc(x.flatten(1))",
    ),
    "operands_by_name": (
        "self.c = nn.Conv2d(8, 8, 3)",
        "x = torch.mean(input=self.c(input=self.b(self.a(x))), dim=(2, 3), keepdim=True)\n"
        "        return self.fc(torch.flatten(input=x, start_dim=1))",
    ),
    "plain_statistics_behind_the_classes": (
        "self.n = nn.BatchNorm1d(3, affine=False)",
        "return self.n(self.fc(self.b(self.a(x)).mean((2, 3))))",
    ),
}
REFUSED = {
    "unused": (
        "self.aux = convolution(8, 6)",
        f"y = self.aux(self.a(x))\n        {HEAD}",
        r"aux\.2 \(ReLU\): nothing reads its result; remove it",
    ),
    "two_in_training": (
        "",
        "y = self.fc(self.b(self.a(x)).mean((2, 3)))\n        return (y, y) if self.training else y",
        "delivers a tuple in training mode; return only the logits",
    ),
    "linear_on_a_map": (
        "self.l = nn.Linear(6, 6)",
        "return self.fc(self.b(self.l(self.a(x))).mean((2, 3)))",
        r"l \(Linear\): reads \(1, 12, 6, 8\), needed a vector",
    ),
    "weight_norm": (
        "self.b = nn.utils.weight_norm(nn.Conv2d(8, 8, 3))",
        HEAD,
        "b: its weight is computed, not a parameter",
    ),
    "no_statistics": (
        "self.b = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, track_running_stats=False))",
        HEAD,
        r"b\.1 \(BatchNorm2d\): has no statistics .* set track_running_stats=True",
    ),
    "strange_call": (
        "",
        "x = self.b(self.a(x)).mean((2, 3))\n        return self.fc(x.view(size=(x.size(0), -1)))",
        "view in its forward: its arguments are not understood; write it in a plainer way",
    ),
}


def user_network(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, layers: str, body: str) -> NetworkConfig:
    text = SOURCE.replace("LAYERS", layers or "pass").replace("BODY", body)
    (folder / f"net_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return NetworkConfig(module=f"net_{name}:make", input_shape=(12, 6, 1), classes=3)


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_usual_code_is_pruned_to_its_budget_and_rebuilt(name, data, tmp_path, monkeypatch):
    network = user_network(tmp_path, monkeypatch, name, *UNDERSTOOD[name])
    whole = resources(graph_from_torch(build(network), network.input_shape))
    budget = BudgetConfig(size_bytes=f"{whole.size_bytes * 3 // 4}B")
    made = prune(data, tmp_path / "out", network=network, budget=budget)
    metrics = metrics_of(tmp_path / "out")
    assert metrics["fits"] and metrics["after"]["size_bytes"] < metrics["before"]["size_bytes"] == whole.size_bytes
    net = read_architecture(made.architecture).build()
    net.load_state_dict(torch.load(made.network, weights_only=True))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_other_code_is_refused_in_a_sentence_that_names_it(name, data, tmp_path, monkeypatch):
    *code, sentence = REFUSED[name]
    network = user_network(tmp_path, monkeypatch, name, *code)
    with pytest.raises(PipelineError, match=sentence):
        prune(data, tmp_path / "out", network=network, budget=BudgetConfig(size_bytes="400B"))
