"""A task of MLPerf Tiny -> its three modes on a board or twin, and a submission folder with a verdict.

Two images are needed, one that tells the time and one that pulses a pin: each is built and flashed as every other, then
the tools that `mlperf_*` in pipeline.yaml name do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.api.execution import CORES, finished_run, is_model_file, setting_texts
from pipeline.api.project import AnyPath, open_project
from pipeline.config import PROJECT_FILE
from pipeline.engine.assembly import RunOptions
from pipeline.engine.runner import artifact_paths
from pipeline.stage import Answer

_FLASHED = "flash"  # the step after which a device can be asked
_PRUNED = "architecture"  # what the prune step makes


def mlperf(
    task: str,
    network: AnyPath,
    board: str,
    *,
    out: AnyPath,
    virtual: bool = False,
    data: AnyPath | None = None,
    inputs: int = 0,
    window_s: float = 10.0,
    division: str = "open",
    submitter: str = "submitter",
    energy: bool = True,
    quick: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    jobs: int = CORES,
    command: str = "",
    project: AnyPath = PROJECT_FILE,
) -> Answer:
    """Performance, accuracy and energy of a .tflite or an experiment's network, as MLPerf Tiny's runner does them.

    `data` holds the task's official inputs (without it: the test set of the experiment), of which accuracy takes
    `inputs`, 0 for all; `out` gets the folder <division>/<submitter>.
    """
    opened = open_project(project)
    opened.refuse_unknown_board("mlperf", board)
    pruned = not is_model_file(str(network))
    wanted = {
        **{"task": task, "board": board, "source": "virtual" if virtual else "hardware", "out": Path(out)},
        **{"data": None if data is None else Path(data), "most_inputs": inputs, "window_s": window_s},
        **{"division": division, "submitter": submitter, "bench": opened.root / "bench.yaml"},
    }
    opened.tool("mlperf_prepare")(wanted, pruned)
    artifacts, runs = {}, {}
    for mode in ("performance", "energy") if energy else ("performance",):
        of_task = opened.tool("mlperf_settings")(task, mode == "energy").record["settings"]
        settings = (*of_task, *setting_texts(set))
        options = RunOptions(boards=(board,), virtual=virtual, settings=settings, until=_FLASHED)
        _, outcomes = finished_run(Path(project), str(network), quick, options, jobs)
        artifacts[mode] = artifact_paths(outcomes)
        runs[mode] = opened.tool("mlperf_run")(wanted, artifacts[mode], mode == "energy").record
    pruned = any(_PRUNED in made for made in artifacts.values())
    return opened.tool("mlperf_submit")(wanted, artifacts, runs, pruned, command)
