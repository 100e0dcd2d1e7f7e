"""`show` of an entry of `studies`: which figures are tabulated, compared and drawn, and what the paper says.

columns    figures of the table, as `points.py` names them
measure    the one that is compared: its differences are tested
baseline   level of one or more factors that the others are compared with; none: whether anything differs at all
charts     kinds of drawings: see `charts.py`
paper      what the paper prints: a sentence, and rows of levels with figures that stand beside ours
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from pipeline.errors import ConfigError
from pipeline.stage import Config

ChartKind = Literal["bars", "pareto", "peak", "start", "heat", "layers"]


class PaperConfig(Config):
    """The reference; its figures are of other networks and data than ours, as `about` says."""

    about: str
    rows: tuple[dict[str, Any], ...] = ()


class ShowConfig(Config):
    columns: tuple[str, ...]
    measure: str = "validation_accuracy"
    baseline: dict[str, str] = {}
    charts: tuple[ChartKind, ...] = ()
    paper: PaperConfig | None = None


def show_config(name: str, given: Mapping[str, Any]) -> ShowConfig:
    try:
        return ShowConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"studies.{name}.show.{where}: {first['msg']}, found {first['input']!r}") from error
