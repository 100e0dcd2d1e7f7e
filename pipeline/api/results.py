"""What a tool found, as text and plain values -> a result with typed fields and tables for pandas.

The fields are the keys that `--json` prints (DESIGN: columns and keys); `record` holds all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.stage import Answer, Source

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound="Result")


@dataclass(frozen=True)
class Result(Answer):
    """Text for a person, plain values for a program; a notebook shows the text."""

    text: str = dataclasses.field(repr=False)
    record: Any = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"

    @classmethod
    def of(cls: type[R], answer: Answer, **more: Any) -> R:
        """The result whose fields are the values of an answer, and `more` that only the caller knows."""
        named = {field.name for field in dataclasses.fields(cls)} - {"text", "record"} - more.keys()
        values = {name: answer.record[name] for name in named if name in answer.record}
        return cls(text=answer.text, record=answer.record, **values, **more)


@dataclass(frozen=True)
class Inspection(Result):
    """What a .tflite needs: as stored, in the best order, and the lower bound."""

    size_bytes: int
    macs: int
    peak_bytes_stored: int
    peak_bytes: int  # in the best order
    peak_bytes_imprecise: int
    arena_bytes: int
    lower_bound_bytes: int
    order_proven_optimal: bool
    layout_proven_optimal: bool

    @property
    def ops(self) -> pd.DataFrame:
        """One row for each op, in the stored order."""
        import pandas as pd

        return pd.DataFrame(self.record["ops"])


@dataclass(frozen=True)
class Optimization(Result):
    """A file that was re-ordered and planned; its outputs are bit-identical."""

    model: Path  # the new file
    arena_bytes_before: int  # of TensorFlow Lite Micro
    arena_bytes: int
    peak_bytes_stored: int
    peak_bytes: int
    lower_bound_bytes: int
    reordered: bool


@dataclass(frozen=True)
class Compilation(Result):
    """A folder of C for any Cortex-M7, and for the host."""

    folder: Path
    ops: int
    macs: int
    arena_bytes: int
    scratch_bytes: int
    ram_bytes: int
    constant_bytes: int


@dataclass(frozen=True)
class Evaluation(Result):
    """How often an int8 network is right; shares of 1."""

    accuracy: float
    standard_error: float
    n: int
    right: int
    split: str
    data_source: str
    model_sha256: str
    seconds: float

    @property
    def per_class(self) -> pd.DataFrame:
        """n, accuracy and standard_error of each class."""
        import pandas as pd

        return pd.DataFrame(self.record["per_class"]).T

    @property
    def confusion(self) -> pd.DataFrame:
        """A row for each true class, a column for each chosen one."""
        import pandas as pd

        classes = self.record["classes"]
        return pd.DataFrame(self.record["confusion"], index=classes, columns=classes)


@dataclass(frozen=True)
class Resources(Result):
    """What a network needs before it is pruned, beside its budget; 1 KB = 1000 bytes."""

    size_bytes: int
    peak_bytes: int
    peak_bytes_imprecise: int
    macs: int
    budget: Mapping[str, int]

    @property
    def fits(self) -> bool:
        """Whether every budget that is given holds already."""
        return all(getattr(self, key) <= limit for key, limit in self.budget.items())

    @classmethod
    def beside(cls, answer: Answer) -> Resources:
        """From what the tool `resources` answers."""
        return cls(text=answer.text, record=answer.record, budget=answer.record["budget"], **answer.record["unpruned"])


@dataclass(frozen=True)
class Measurement(Result):
    """A network on one board: what was counted, modelled and, on a real board, measured."""

    folder: Path  # samples.csv, layers.csv, outputs.npz, device.json
    run_folder: Path  # the steps behind it
    board: str
    source: Source
    n: int
    macs: int
    arena_bytes: int
    flash_bytes: int
    ram_bytes: int
    instructions: int | None = None
    cycles_modelled: int | None = None
    cycles_zero_wait: int | None = None
    latency_ms_modelled: float | None = None
    latency_ms: float | None = None  # None on a twin, which has no clock of its own
    energy_mj: float | None = None
    energy_mj_simulated: float | None = None
    accuracy_n: int | None = None
    accuracy_device: float | None = None
    accuracy_host: float | None = None

    @property
    def samples(self) -> pd.DataFrame:
        """One row for each timed inference."""
        return read_table(self.folder / "samples.csv")

    @property
    def layers(self) -> pd.DataFrame:
        """One row for each op as it ran."""
        return read_table(self.folder / "layers.csv")


def read_table(file: Path) -> pd.DataFrame:
    """A CSV file of ours; a value that does not exist is NaN."""
    import pandas as pd

    return pd.read_csv(file)
