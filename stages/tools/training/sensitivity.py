"""`pipeline sensitivity`: what int8 costs, layer by layer, on the validation examples.

The network behind qat is run in float, with one layer at a time on its int8 grids: weights, bias and result, with
everything else exact. What the loss and the accuracy lose then is that layer's doing. The last row has all layers on
their grids, with the device's own roundings. `layer_error.csv` of the export step tells how far the values are off
instead, with what the layers before bring along.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer, Config
from pipeline.text import aligned
from stages.graph.arithmetic import torch_kernels as kernels
from stages.graph.graph import Graph, Op
from stages.graph.record import graph_from_record
from stages.qat.fake_quant import FakeQuantNetwork
from stages.report.charts.vocabulary import ROW_AXIS, field, hover, labelled, rows_height
from stages.report.page.chart import Chart
from stages.training.determinism import reproducible
from stages.training.examples import Split, load_examples

INPUT = -1
_AT_ONCE = 100  # examples
_SHOWN = 10  # rows of the table, the worst first
_NO_ROUNDING = frozenset({"MAX_POOL_2D", "RESHAPE", "PAD", "CONCATENATION"})  # they copy what is rounded already


@dataclass(frozen=True)
class Row:
    """A layer on its int8 grids, the others in float."""

    index: int | None  # position in the graph; None: all layers together
    op: str
    name: str
    loss: float  # cross-entropy
    loss_increase: float  # against float
    accuracy: float
    accuracy_change: float
    changed_share: float  # of the examples, told another class than by the float network
    logits_sqnr_db: float | None  # None: no difference at all


class OneLayerRounded(FakeQuantNetwork):
    """The float network, but for the chosen op; INPUT: the network's input is on its grid, and nothing else."""

    chosen: int | None = None

    @classmethod
    def of(cls, graph: Graph) -> OneLayerRounded:
        """With the grids that the tensors of `graph` have."""
        made = cls(graph)
        for index, owner in made.grid_of.items():
            grid = graph.tensors[index].quantisation
            assert grid is not None, graph.tensors[index].name
            made._set_grid(owner, grid.scale[0], grid.zero_point[0])
        return made.eval()

    def _entered(self, x: Tensor) -> Tensor:
        entered = super()._entered(x)
        return self._on_grid(entered, self.graph.inputs[0]) if self.chosen == INPUT else entered

    def _run(self, number: int, op: Op, values: dict[int, Tensor]) -> Tensor:
        result = super()._run(number, op, values)
        return self._on_grid(result, op.outputs[0]) if number == self.chosen else result

    def _weighted(self, key: str, op: Op, x: Tensor) -> Tensor:
        if int(key) != self.chosen:
            return super()._weighted(key, op, x)
        weight, bias = self.weights[key], self.biases[key]
        scale = self._weight_scale(op, weight, bias)
        unit = scale.flatten().double() * self._grid(self.grid_of[op.inputs[0]]).scale[0]
        rounded = (weight / scale).round() * scale, ((bias / unit).round() * unit).float()
        return kernels.activated(kernels.weighted(op, x, *rounded), getattr(op.options, "activation", "none"))

    def _on_grid(self, x: Tensor, tensor: int) -> Tensor:
        grid = self._grid(self.grid_of[tensor])
        steps = (x / grid.scale[0]).round().clamp(-128 - grid.zero_point[0], 127 - grid.zero_point[0])
        return steps * grid.scale[0]


def sensitivity(sections: Mapping[str, Config], artifacts: Mapping[str, Path], samples: int, out: Path) -> Answer:
    """Write sensitivity.csv, .svg and .png to `out`, and show the layers that cost most."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file, needed a folder; choose another name")
    config: Any = sections["qat"]
    graph = graph_from_record(torch.load(artifacts["qat_network"], weights_only=True)["graph"])
    classes = graph.tensors[graph.outputs[0]].shape[-1]
    validation = load_examples(artifacts["features"], classes).validation
    draw = torch.Generator().manual_seed(config.seed)
    chosen = torch.randperm(len(validation), generator=draw)[:samples].sort().values
    with reproducible(config.threads):
        rows = layer_costs(graph, Split(validation.x[chosen], validation.y[chosen]))
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "sensitivity.csv", rows)
    chart = _chart(rows, len(chosen))
    (out / "sensitivity.svg").write_text(chart.svg)
    (out / "sensitivity.png").write_bytes(chart.png)
    return Answer(_text(rows, len(chosen), out), [asdict(row) for row in rows])


def layer_costs(graph: Graph, examples: Split) -> list[Row]:
    """The input, every op that rounds, and all of them together."""
    net = OneLayerRounded.of(graph)
    ops = {number: op for number, op in enumerate(graph.ops) if op.kind not in _NO_ROUNDING | {"SOFTMAX"}}
    with net.without_rounding():
        exact = _logits(net, examples)
        rows = []
        for number in (INPUT, *ops):
            net.chosen = number
            op, name = ("INPUT", "input") if number == INPUT else (ops[number].kind, ops[number].name)
            rows.append(_row(number, op, name, _logits(net, examples), exact, examples.y))
        net.chosen = None
    return [*rows, _row(None, "ALL", "all layers", _logits(net, examples), exact, examples.y)]


@torch.no_grad()
def _logits(net: FakeQuantNetwork, examples: Split) -> Tensor:
    return torch.cat([net(part) for part in examples.x.split(_AT_ONCE)]).double()


def _row(index: int | None, op: str, name: str, logits: Tensor, exact: Tensor, y: Tensor) -> Row:
    if not bool(logits.isfinite().all()):
        raise StageError(f"sensitivity: {op} {name}: logits are not finite; run qat again with a lower learning rate")
    loss, before = (float(F.cross_entropy(each, y)) for each in (logits, exact))
    right, was_right = (float((each.argmax(1) == y).double().mean()) for each in (logits, exact))
    noise = float((logits - exact).square().sum())
    return Row(
        index=index,
        op=op,
        name=name,
        loss=loss,
        loss_increase=loss - before,
        accuracy=right,
        accuracy_change=right - was_right,
        changed_share=float((logits.argmax(1) != exact.argmax(1)).double().mean()),
        logits_sqnr_db=10 * math.log10(float(exact.square().sum()) / noise) if noise > 0 else None,
    )


def _write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        table.writeheader()
        for row in rows:
            shown = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in asdict(row).items()}
            table.writerow({key: "" if value is None else value for key, value in shown.items()})


def _text(rows: list[Row], samples: int, out: Path) -> str:
    *layers, together = rows
    worst = sorted(layers, key=lambda row: -row.loss_increase)[:_SHOWN]
    table = [("layer", "op", "loss", "accuracy", "other class", "SQNR of the logits")]
    for row in (*worst, together):
        noise = "exact" if row.logits_sqnr_db is None else f"{row.logits_sqnr_db:.1f} dB"
        change = f"{100 * row.accuracy_change:+.2f} points"
        table.append((row.name, row.op, f"{row.loss_increase:+.5f}", change, f"{100 * row.changed_share:.2f} %", noise))
    title = f"each layer alone on its int8 grids, {samples} validation examples, worst first"
    return "\n".join([title, *aligned(table), f"every layer is in {out}/sensitivity.csv"])


def _chart(rows: list[Row], samples: int) -> Chart:
    layers = pd.DataFrame([asdict(row) for row in rows[:-1]])
    layers["layer"] = labelled(["" if index == INPUT else index for index in layers["index"]], layers["name"])
    tip = hover(
        layer="layer", op="op", loss_increase="loss|+.5f", accuracy_change="accuracy|+.2%", logits_sqnr_db="dB|.1f"
    )
    spec = {
        "mark": {"type": "bar"},
        "encoding": {
            "y": field("layer", "N", sort=None, axis=ROW_AXIS),
            "x": field("loss_increase", title="increase of the validation loss"),
            "tooltip": tip,
        },
    }
    note = f"One layer at a time, {samples} validation examples; all together {rows[-1].loss_increase:+.5f}."
    title = "What int8 costs, layer by layer"
    return Chart("sensitivity", title, note, layers, spec, rows_height(len(layers)))
