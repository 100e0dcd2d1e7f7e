"""`pipeline lr-find`: a learning rate for an experiment, from a short training whose rate grows with every step.

The range test of Smith 2017 (arXiv:1506.01186). The steps are the experiment's own: network, examples, augmentation,
optimiser and recipe, without pruning. The rate that is suggested is where the smoothed loss falls most steeply; nothing
but the answer is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer, Config, read_json
from stages.nets.registry import read_architecture
from stages.prune.run import started
from stages.prune.task import Task
from stages.qat.quantised_network import fake_quant_network
from stages.qat.training import Tuning
from stages.report.charts.vocabulary import field, hover
from stages.report.page.chart import Chart
from stages.training.determinism import reproducible
from stages.training.device import chosen_device
from stages.training.distillation import load_teacher
from stages.training.examples import load_examples
from stages.training.loop import Recipe, Run, train_step

_MEMORY = 0.9  # of the smoothed loss: ten steps
_BROKEN = 4.0  # times the least smoothed loss: the training is lost, and further steps tell nothing
_NEIGHBOURS = 0.1  # share of the steps over which a slope is taken
_FEWEST_STEPS = 20


@dataclass(frozen=True)
class Sweep:
    """From the lowest rate to the highest, each step by the same factor."""

    steps: int
    lowest: float
    highest: float

    def __post_init__(self) -> None:
        if self.steps < _FEWEST_STEPS:
            raise ConfigError(f"--steps: found {self.steps}, needed at least {_FEWEST_STEPS} for a slope")
        if not 0 < self.lowest < self.highest:
            raise ConfigError(f"--lowest, --highest: found {self.lowest:g} and {self.highest:g}, needed 0 < low < high")

    def rate_at(self, step: int) -> float:
        return float(self.lowest * (self.highest / self.lowest) ** (step / (self.steps - 1)))


@dataclass(frozen=True, kw_only=True)
class Swept(Recipe):
    """The experiment's recipe, but for its rate."""

    sweep: Sweep

    def learning_rate_at(self, step: int) -> float:
        return self.sweep.rate_at(step)


@dataclass(frozen=True)
class Found:
    """What a sweep showed."""

    suggested: float
    least_loss_at: float
    breaks_at: float | None  # None: not within the sweep


def learning_rate(
    sections: Mapping[str, Config],
    artifacts: Mapping[str, Path],
    step: str,
    steps: int,
    ends: tuple[float, float],
    out: Path,
) -> Answer:
    """Write learning_rate.csv, .svg and .png to `out`, and suggest a rate for `step`, prune or qat."""
    sweep = Sweep(steps, *ends)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file, needed a folder; choose another name")
    settings: Any = sections[step]
    training: Any = sections["training"]
    with reproducible(settings.threads, chosen_device(training.device).type):
        trial = (_pruning if step == "prune" else _tuning)(sections, artifacts)
        rows = swept(trial.start(), trial.recipe, trial.batches, sweep)
    now, table = trial.recipe.learning_rate, _table(rows)
    found = suggestion(table, is_cut=len(table) < sweep.steps)
    out.mkdir(parents=True, exist_ok=True)
    chart = _chart(step, table, found, now)
    for suffix, content in (("csv", chart.csv.encode()), ("svg", chart.svg.encode()), ("png", chart.png)):
        (out / f"learning_rate.{suffix}").write_bytes(content)
    broken = "it holds to the end" if found.breaks_at is None else f"training breaks at {found.breaks_at:.2g}"
    text = (
        f"{step}.learning_rate: {found.suggested:.2g} suggested, where the loss falls most steeply (now {now:.2g}); "
        f"the loss is least at {found.least_loss_at:.2g}, {broken}\n"
        f"{len(table)} steps from {sweep.lowest:g}; files in {out}/\n"
        f"to use it: --set {step}.learning_rate={found.suggested:.2g}"
    )
    record = {"step": step, "suggested": found.suggested, "now": now, "least_loss_at": found.least_loss_at}
    return Answer(text, {**record, "breaks_at": found.breaks_at, "steps": len(table)})


def swept(
    run: Run, recipe: Recipe, batches: Callable[[int], Iterator[tuple[Tensor, Tensor]]], sweep: Sweep
) -> list[tuple[float, float]]:
    """Rate and loss of every step, until the training is lost."""
    growing = Swept(**{**vars(recipe), "sweep": sweep})
    rows: list[tuple[float, float]] = []
    least, smoothed = math.inf, _Smoothed()
    run.net.train()
    with suppress(StageError):  # a loss that is not finite ends the sweep
        for x, y in islice((batch for epoch in count() for batch in batches(epoch)), sweep.steps):
            rows.append((sweep.rate_at(run.step), train_step(growing, run, x, y)))
            value = smoothed.after(rows[-1][1])
            least = min(least, value)
            if len(rows) >= _FEWEST_STEPS and value > _BROKEN * least:
                break
    return rows


def suggestion(table: pd.DataFrame, is_cut: bool) -> Found:
    """Where the smoothed loss falls most steeply per decade before it is least; StageError where it never falls."""
    rates, losses = table["rate"].to_numpy(), table["smoothed"].to_numpy()
    reach = max(2, round(_NEIGHBOURS * len(table)))
    least = int(np.argmin(losses))
    if len(table) < _FEWEST_STEPS or least < reach:
        raise StageError(
            f"lr-find: the loss does not fall between {rates[0]:.2g} and {rates[-1]:.2g}; lower --lowest, or raise "
            "--highest and --steps"
        )
    decades = np.log10(rates)
    slopes = [
        np.polyfit(decades[middle - reach : middle + 1], losses[middle - reach : middle + 1], 1)[0]
        for middle in range(reach, least + 1)
    ]
    # The line over its neighbours belongs to their middle.
    steepest = float(10 ** np.mean(decades[int(np.argmin(slopes)) : int(np.argmin(slopes)) + reach + 1]))
    return Found(float(f"{steepest:.2g}"), float(rates[least]), float(rates[-1]) if is_cut else None)


class _Smoothed:
    """The mean of the losses so far, the last ones weighing most."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def after(self, loss: float) -> float:
        self.total = _MEMORY * self.total + (1 - _MEMORY) * loss
        self.weight = _MEMORY * self.weight + (1 - _MEMORY)
        return self.total / self.weight


def _table(rows: list[tuple[float, float]]) -> pd.DataFrame:
    smoothed = _Smoothed()
    table = pd.DataFrame(rows, columns=["rate", "loss"])
    table["smoothed"] = [smoothed.after(loss) for loss in table["loss"]]
    return table


@dataclass(frozen=True, eq=False)
class Trial:
    """A step of the pipeline, ready to make single training steps."""

    recipe: Recipe
    start: Callable[[], Run]
    batches: Callable[[int], Iterator[tuple[Tensor, Tensor]]]  # of an epoch


def _pruning(sections: Mapping[str, Any], artifacts: Mapping[str, Path]) -> Trial:
    record = read_json(artifacts["dataset"])
    classes, are_pictures = len(record["classes"]), "image_px" in record.get("features", ())
    training = sections["training"]
    examples = load_examples(artifacts["features"], classes, are_pictures=are_pictures, training=training)
    network = sections["network"].for_data(examples.input_shape, classes)
    task = Task(examples, network, sections["budget"], sections["prune"], training)
    return Trial(task.recipe, partial(started, task), task.batches)


def _tuning(sections: Mapping[str, Any], artifacts: Mapping[str, Path]) -> Trial:
    training, config = sections["training"], sections["qat"]
    shape, device = read_architecture(artifacts["architecture"]), chosen_device(training.device)
    teacher = load_teacher(training.distillation, shape.input_shape, shape.classes, device)
    net = fake_quant_network(shape, artifacts["network"], config).to(device)
    examples = load_examples(artifacts["features"], shape.classes, training=training)
    tuning = Tuning(net, examples, config, training, teacher)

    def start() -> Run:
        run = tuning.start()
        run.begin_epoch()
        return run

    return Trial(tuning.recipe, start, tuning.batches)


def _chart(step: str, table: pd.DataFrame, found: Found, now: float) -> Chart:
    lines = table.melt(id_vars=["rate"], value_vars=["loss", "smoothed"], var_name="kind", value_name="value")
    x = field("rate", title=f"{step}.learning_rate", scale={"type": "log", "nice": False}, axis={"format": ".0e"})
    tip = hover(kind="loss", rate="rate|.2e", value="value|.4f")
    y = field("value", title="training loss", scale={"zero": False})
    spec = {
        "layer": [
            {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": field("kind", "N"), "tooltip": tip}},
            {"mark": {"type": "rule", "strokeDash": [5, 3]}, "encoding": {"x": {"datum": found.suggested}}},
        ]
    }
    note = (
        f"The dashed line, {found.suggested:.2g}, is where the smoothed loss falls most steeply; now {now:.2g} is set."
    )
    return Chart("learning_rate", f"Training loss of {step} while the learning rate grows", note, lines, spec)
