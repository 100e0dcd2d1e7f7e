"""Commands around the trainings of an experiment: a learning rate for them, and what int8 costs each layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from pipeline.api import training as api
from pipeline.cli.options import AsJson, ExperimentName, Quick, Settings, chosen
from pipeline.cli.output import print_answer

OutFolder = Annotated[Path, typer.Option("-o", "--out", help="folder for table and pictures", metavar="DIR")]


def lr_find(
    experiment: ExperimentName,
    step: Annotated[str, typer.Option("--step", help="prune or qat", metavar="STEP")] = "prune",
    steps: Annotated[int, typer.Option("--steps", help="training steps, each with a higher rate")] = 100,
    lowest: Annotated[float, typer.Option("--lowest", help="rate of the first step")] = 1e-5,
    highest: Annotated[float, typer.Option("--highest", help="rate of the last step")] = 10.0,
    out: OutFolder = Path("learning_rate"),
    quick: Quick = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Suggest a learning rate from a short training whose rate grows; the experiment stays as it is."""
    answer = api.find_learning_rate(
        experiment,
        out,
        step=cast(api.Trained, step),  # another one is refused there
        steps=steps,
        lowest=lowest,
        highest=highest,
        quick=quick,
        set=settings or (),
        project=chosen.file,
    )
    print_answer(answer, as_json)


def sensitivity(
    experiment: ExperimentName,
    samples: Annotated[int, typer.Option("--samples", min=1, help="validation examples, at most")] = 1000,
    out: OutFolder = Path("sensitivity"),
    quick: Quick = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Tell what int8 costs, one layer at a time: loss, accuracy and noise on the validation examples."""
    print_answer(
        api.sensitivity(experiment, out, samples=samples, quick=quick, set=settings or (), project=chosen.file), as_json
    )


def add_to(app: typer.Typer) -> None:
    app.command(name="lr-find")(lr_find)
    app.command()(sensitivity)
