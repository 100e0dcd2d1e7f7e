"""An experiment -> its finished run: tables for pandas, the network, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.api.execution import CORES, finished_run, setting_texts
from pipeline.api.project import AnyPath
from pipeline.api.results import read_table
from pipeline.config import PROJECT_FILE
from pipeline.engine.assembly import RunOptions
from pipeline.engine.runner import Outcome, Runner
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A finished run. What is a file of it is a path, what is a table is read into pandas when it is asked for."""

    id: str  # as `pipeline runs` lists it
    experiment: str
    quick: bool
    folder: Path  # every file, step by step, and run.json
    outcomes: Sequence[Outcome] = field(repr=False)
    files: Mapping[str, Path] = field(repr=False)  # artifact -> file or folder; those made for a board are in `folder`
    shown: Mapping[str, str] = field(repr=False)  # what the project shows: 'model' -> name of the artifact

    @property
    def summary(self) -> pd.DataFrame:
        """One row for each board: accuracy, resources, latency, energy."""
        return read_table(self._file("rows"))

    @property
    def layers(self) -> pd.DataFrame:
        """One row for each board and op."""
        return read_table(self._file("layers"))

    @property
    def trajectory(self) -> pd.DataFrame:
        """How the widths and the use of resources moved during training."""
        return read_table(self._file("trajectory"))

    @property
    def steps(self) -> pd.DataFrame:
        """What ran, what came from the cache, and where it is."""
        import pandas as pd

        return pd.DataFrame(self.step_records())

    @property
    def model(self) -> Path:
        """The network as .tflite."""
        return self._file("model")

    @property
    def report(self) -> Path:
        """The page with figures."""
        return self._file("report")

    @property
    def text(self) -> str:
        """What the command line prints; empty if the run stopped before the last step."""
        table = self.files.get(self.shown.get("table", ""))
        return "" if table is None else table.read_text()

    def step_records(self) -> list[dict[str, Any]]:
        """The steps as plain values."""
        return [_step_record(outcome, self.folder) for outcome in self.outcomes]

    def __str__(self) -> str:
        return self.text or repr(self)

    def _repr_html_(self) -> str:
        report = self.files.get(self.shown.get("report", ""))
        link = "" if report is None else f'<a href="{escape(report.as_uri())}">{escape(report.name)}</a>'
        return f"<pre>{escape(str(self))}</pre>{link}"

    def _file(self, role: str) -> Path:
        artifact = self.shown.get(role, role)
        if artifact not in self.files:
            made = ", ".join(sorted(self.files)) or "nothing"
            raise ConfigError(f"{self.experiment}: this run made no {artifact}, it made {made}; run all of its steps")
        return self.files[artifact]


def run(
    experiment: str,
    *,
    quick: bool = False,
    boards: Sequence[str] = (),
    virtual: bool = False,
    set: Mapping[str, Any] | Sequence[str] = (),
    start: str | None = None,
    only: str | None = None,
    force: Sequence[str] = (),
    jobs: int = CORES,
    progress: bool = True,
    project: AnyPath = PROJECT_FILE,
) -> Run:
    """Run an experiment of pipeline.yaml, or a built-in one: whatever is not cached, in order.

    `set` overrides values of the configuration: {"prune.epochs": 4, "data.root": "recordings"}. `boards` must be
    attached unless `virtual`; with neither, the experiment's boards are used where attached, otherwise their twins.
    `start`, `only` and `force` name steps, as --from, --only and --force do.
    """
    options = RunOptions(
        boards=boards, virtual=virtual, settings=setting_texts(set), start=start, only=only, force=force
    )
    return completed(*finished_run(Path(project), experiment, quick, options, jobs, progress=progress))


def completed(runner: Runner, outcomes: Sequence[Outcome]) -> Run:
    """The run that a runner has brought to its end."""
    folder = runner.record.folder.resolve()
    return Run(
        id=runner.record.id,
        experiment=runner.experiment.name,
        quick=runner.experiment.quick,
        folder=folder,
        outcomes=outcomes,
        files={
            artifact: folder / outcome.node.folder / place
            for outcome in outcomes
            if outcome.node.target is None
            for artifact, place in outcome.entry.outputs.items()
        },
        shown=runner.project.show,
    )


def _step_record(outcome: Outcome, folder: Path) -> dict[str, Any]:
    target = outcome.node.target
    return {
        "step": outcome.node.step,
        "board": target.board if target else None,
        "source": target.source if target else None,
        "status": outcome.status,
        "seconds": round(outcome.seconds, 3),
        "folder": str(folder / outcome.node.folder),
    }
