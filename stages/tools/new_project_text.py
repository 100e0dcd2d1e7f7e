"""The files of a new project as text: what its owner reads and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

_PROJECT = """\
# Your experiments; those that come with the package (pipeline list) are there, too.
# Any value can be tried without a change here: pipeline run {name} --set prune.epochs=10

experiments:
  {name}:
    description: {told}
    data: {data}
    # {other_network}
    network: {network}
    # The network is pruned while it trains until it needs no more than this; 1 KB = 1000 bytes, MACs of one inference.
    budget: {budget}
    prune: {prune}
    qat: {qat} # trained on with int8 rounding
    boards: {boards} # attached ones are used; without any, their virtual twins (pipeline boards lists all)

ci: # what `pipeline ci` runs and compares; its first baseline: pipeline ci --update-baseline
  experiments: [{name}]
  quick: true
  baseline: baseline.csv
"""

_NETWORK = '''\
"""My own network: a plain torch module. In pipeline.yaml: network: {{module: "{module}:{function}"}}"""

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return torch.relu(y + self.shortcut_norm(self.shortcut(x)))


def {function}(input_shape: tuple[int, int, int], classes: int, width: int = 16) -> nn.Module:
    """The network before pruning, for inputs of (height, width, channels).

    `input_shape` and `classes` come from the data; further parameters from `args` beside `module` in pipeline.yaml.
    """
    channels = input_shape[2]
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Residual(width, 2 * width, stride=2),
        Residual(2 * width, 4 * width, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )
'''

_README = """\
# {name}

{told}.

    pipeline run {name}              # data -> pruned int8 network -> firmware -> numbers, on a board or its twin
    pipeline run {name} --quick      # fewer epochs, fewer files: does everything work?
    pipeline plan {name}             # what is cached, what will run
    pipeline resources {name}        # the network before pruning, beside its budget
    pipeline doctor                  # is anything missing on this machine?

Results are in `runs/`: open `report.html`; `model.tflite` is the network. The configuration is `pipeline.yaml`; a
network of your own is in `{file}`. From Python:

    from pipeline import run
    mine = run("{name}", set={{"prune.epochs": 10}})
    mine.summary, mine.layers, mine.trajectory    # pandas
"""

_IGNORED = """\
# made by runs: the cache, and links into it
.pipeline/
runs/
out/
__pycache__/
"""

_WORKFLOW = """\
# Runs the experiments of the section `ci` on virtual twins at every push; compares with baseline.csv, if there is one.
# The data have to be in the repository, or be fetched in a step of their own.
name: pipeline
on: [push, pull_request]
jobs:
  {name}:
    runs-on: ubuntu-24.04
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.11"}}
      - run: >
          sudo apt-get update && sudo apt-get install -y --no-install-recommends
          gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm espeak-ng
      - run: pip install tinyml-pipeline # or the wheel that you use; PIP_EXTRA_INDEX_URL: PyTorch's CPU wheels
      - run: pipeline ci --junit out/junit.xml --csv out/rows.csv
      - if: always()
        uses: actions/upload-artifact@v4
        with: {{name: results, path: out/}}
"""


def project_file(
    name: str,
    kind: str,
    root: Path | None,
    told: str,
    network: Mapping[str, Any],
    own_network: str,
    budget: Mapping[str, int],
    boards: Sequence[str],
) -> str:
    """pipeline.yaml."""
    data = {"source": "builtin_keywords"} if root is None else {"source": "folder", "root": str(root)}
    other = f"your own network: {_inline({'module': own_network})}, see {own_network.partition(':')[0]}.py"
    if "module" in network:
        other = "args: {...} beside module gives the function arguments; ours: pipeline run X --set network=..."
    limits = {key: _rounded(value, "B" if key.endswith("_bytes") else "") for key, value in budget.items()}
    return _PROJECT.format(
        name=name,
        told=_scalar(told),
        data=_inline(data),
        network=_inline(network),
        other_network=other,
        budget=_inline(limits),
        prune=_inline({"epochs": 8} if kind == "keywords" else {"epochs": 40, "batch": 32}),
        qat=_inline({"epochs": 2} if kind == "keywords" else {"epochs": 6}),
        boards=_inline(list(boards)),
    )


def network_file(function: str, module: str = "my_nets") -> str:
    """A small network to change."""
    return _NETWORK.format(function=function, module=module)


def project_readme(name: str, told: str, own_network: str) -> str:
    return _README.format(name=name, told=told[0].upper() + told[1:], file=f"{own_network.partition(':')[0]}.py")


def ignored_files() -> str:
    return _IGNORED


def workflow(name: str) -> str:
    return _WORKFLOW.format(name=name)


def _inline(value: Any) -> str:
    """On one line, as people write it."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True).strip()


def _scalar(text: str) -> str:
    return yaml.safe_dump(text, width=10_000, allow_unicode=True).removesuffix("...\n").strip()


def _rounded(value: int, unit: str) -> str:
    """To two digits and a bit: 48213 -> 48.2K."""
    for size, letter in ((1_000_000, "M"), (1000, "K")):
        if value >= size:
            return f"{value / size:.3g}{letter}{unit}" if value < 1000 * size else f"{value // size}{letter}{unit}"
    return f"{value}{unit}"
