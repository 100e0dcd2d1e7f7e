"""One network at several core clocks of a board -> latency, energy and the best clock for a pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.api.execution import CORES, finished_run, setting_texts
from pipeline.api.project import AnyPath, open_project
from pipeline.config import PROJECT_FILE
from pipeline.engine.assembly import RunOptions
from pipeline.errors import ConfigError
from pipeline.stage import Answer

_MEASURED = "measure"


def clocks(
    network: AnyPath,
    board: str,
    *,
    inferences_per_s: float = 1.0,
    out: AnyPath = "clocks",
    only_mhz: Sequence[int] = (),
    virtual: bool = False,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    jobs: int = CORES,
    project: AnyPath = PROJECT_FILE,
) -> Answer:
    """Build, flash and measure at each of them; on a board add set={"firmware.mode": "energy"} for an instrument."""
    opened = open_project(project)
    opened.refuse_unknown_board("clocks", board)
    if not inferences_per_s > 0:
        raise ConfigError(f"--rate: found {inferences_per_s:g}, needed inferences a second, above 0")
    folders = []
    for mhz in opened.tool("clock_settings")(board, only_mhz).record["clocks_mhz"]:
        settings = (f"firmware.clock={mhz}MHz", *setting_texts(set))
        options = RunOptions(boards=(board,), virtual=virtual, settings=settings, until=_MEASURED)
        _, outcomes = finished_run(Path(project), str(network), quick, options, jobs)
        folders.append(next(one.entry.folder for one in outcomes if one.node.step == _MEASURED))
    return opened.tool("clocks")(board, folders, inferences_per_s, Path(out))
