"""Is a submission folder whole and consistent? Every finding is one sentence: where, what was found, what was needed.

A folder of a twin may be whole, too, but it never passes for a submission: the verdict says so, and a page of it that
does not is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.tools.mlperf.pages import FILES, VIRTUAL, accuracy_lines, accuracy_value, energy_line, stream_lines
from stages.tools.mlperf.pages import throughput_line as throughput
from stages.tools.mlperf.submission import FACTS, SUMS, code_folder, facts_of, sums
from stages.tools.mlperf.tasks import LEAST_WINDOW_S, TASKS, WINDOWS, Mode, Task

_SYSTEM_KEYS = ("Submitter", "Division", "Status", "Board Name", "SoC Name", "Processor(s) Frequencies")
_POINTS = ("board", "mcu", "core")
_NEEDED: tuple[Mode, ...] = ("performance", "accuracy")  # energy may be left out
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """What the checker says."""

    findings: tuple[str, ...]
    virtual: bool
    tasks: tuple[str, ...]

    @property
    def text(self) -> str:
        if self.findings:
            return "\n".join([*self.findings, f"{len(self.findings)} findings: not to be submitted"])
        if self.virtual:
            return f"whole and consistent ({', '.join(self.tasks)}), but {VIRTUAL}"
        return f"whole and consistent: {', '.join(self.tasks)}"


def check(folder: Path) -> Verdict:
    """`folder` is <division>/<submitter>, or any folder above it."""
    roots = sorted({path.parent for path in folder.glob("**/systems") if path.is_dir()})
    findings, tasks, virtual = [], [], False
    if not roots:
        findings.append(f"{folder}: holds no systems/, needed <division>/<submitter>/systems")
    for root in roots:
        found = _Checked(root)
        findings += found.findings()
        tasks += found.tasks
        virtual = virtual or found.virtual
    return Verdict(tuple(findings), virtual, tuple(tasks))


class _Checked:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tasks: list[str] = []
        texts = [path.read_text(errors="replace") for path in root.rglob("log.txt")]
        systems = [path.read_text(errors="replace") for path in (root / "systems").glob("*.json")]
        facts = [path.read_text(errors="replace") for path in root.rglob(FACTS)]
        self.virtual = any("virtual" in text.lower() for text in (*texts, *systems, *facts))

    def findings(self) -> list[str]:
        return [*self._systems(), *self._benchmarks(), *self._pages()]

    def _where(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _systems(self) -> Iterator[str]:
        files = sorted((self.root / "systems").glob("*.json"))
        if not files:
            yield "systems/: no <system>.json"
        for path in files:
            record = _json(path)
            if not isinstance(record, dict):
                yield f"{self._where(path)}: not a JSON object"
                continue
            for key in _SYSTEM_KEYS:
                if not record.get(key):
                    yield f"{self._where(path)}: {key!r} is missing"
            if str(record.get("Division", "")).lower() != self.root.parent.name:
                yield f"{self._where(path)}: division {record.get('Division')!r} in folder {self.root.parent.name!r}"
            if not (self.root / "results" / path.stem).is_dir():
                yield f"{self._where(path)}: no results/{path.stem}/"

    def _benchmarks(self) -> Iterator[str]:
        for system in sorted(path for path in (self.root / "results").glob("*") if path.is_dir()):
            if not (self.root / "systems" / f"{system.name}.json").is_file():
                yield f"{self._where(system)}: no systems/{system.name}.json"
            for folder in sorted(path for path in system.iterdir() if path.is_dir()):
                task = next((task for task in TASKS.values() if task.folder == folder.name), None)
                if task is None:
                    yield f"{self._where(folder)}: no task of that name, known are {', '.join(TASKS).lower()}"
                    continue
                self.tasks.append(task.code)
                yield from self._task(folder, task)

    def _task(self, folder: Path, task: Task) -> Iterator[str]:
        code = code_folder(self.root, task)
        if not (code / FACTS).is_file() or not (code / "README.md").is_file():
            yield f"{self._where(folder)}: no {self._where(code)}/ with README.md and {FACTS}: it cannot be reproduced"
            return
        facts = facts_of(code)
        yield from self._code(code, facts)
        modes = [mode for mode in ("performance", "accuracy", "energy") if (folder / mode).is_dir()]
        for mode in _NEEDED:
            if mode not in modes:
                yield f"{self._where(folder)}: no {mode}/"
        for mode in modes:
            yield from self._mode(folder / mode, mode, task, facts)

    def _code(self, code: Path, facts: Mapping[str, Any]) -> Iterator[str]:
        listed = dict(reversed(line.split("  ", 1)) for line in _lines(code / SUMS))
        present = dict(sums(code))
        for name in sorted({*listed, *present}):
            if listed.get(name) != present.get(name):
                yield f"{self._where(code / name)}: SHA-256 is {present.get(name)}, {SUMS} has {listed.get(name)}"
        if facts["pruned"] and self.root.parent.name != "open":
            yield f"{self._where(code)}: a pruned network in the {self.root.parent.name} division, needed open"
        for mode, build_id in facts["build_ids"].items():
            built = _json(code / f"{mode}_footprint.json")
            if not isinstance(built, dict) or built.get("build_id") != build_id:
                yield f"{self._where(code)}: the {mode} image is not the one that ran ({build_id})"

    def _mode(self, folder: Path, mode: str, task: Task, facts: Mapping[str, Any]) -> Iterator[str]:
        missing = [name for name in FILES if not (folder / name).is_file()]
        yield from (f"{self._where(folder / name)}: missing" for name in missing)
        if missing:
            return
        rows = _json(folder / "results.json")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            yield f"{self._where(folder / 'results.json')}: not a list of results"
            return
        log = _lines(folder / "log.txt")
        names = {line.partition("retrieved: ")[2] for line in log if line.startswith("Device name retrieved")}
        if names != {facts["device"]}:
            told = ", ".join(sorted(names)) or "no device"
            yield f"{self._where(folder)}: the log is of {told}, needed {facts['device']}"
        models = {line.partition("retrieved: ")[2] for line in log if line.startswith("Device model retrieved")}
        if models != {task.model}:
            told = ", ".join(sorted(models)) or "none"
            yield f"{self._where(folder)}: the log is of model {told}, needed {task.model}"
        wanted = facts["build_ids"].get("energy" if mode == "energy" else "performance")
        if any(
            row.get("build_id", wanted) != wanted or row.get("device", facts["device"]) != facts["device"]
            for row in rows
        ):
            yield f"{self._where(folder)}: results of another image or board, needed {wanted} on {facts['device']}"
        try:
            yield from self._figures(folder, mode, task, rows)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            yield f"{self._where(folder / 'results.json')}: {error!r}: not what the runner writes"

    def _figures(self, folder: Path, mode: str, task: Task, rows: Rows) -> Iterator[str]:
        told = (folder / "results.txt").read_text(errors="replace")
        lines = _recomputed(mode, task)(rows)
        for line in lines:
            if line.split(":", 1)[-1].strip() not in told:
                yield f"{self._where(folder / 'results.txt')}: does not say {line!r}, which results.json gives"
        if task.stream and mode != "energy":
            yield from self._detections(folder, task, rows)
        elif mode == "accuracy":
            value = accuracy_value(task, rows)
            if not value >= task.target and self.root.parent.name == "closed":
                yield f"{self._where(folder)}: {task.metric} is {value:.3f}, needed {task.target:g}"
        else:
            yield from self._windows(folder, mode, rows, 1 if task.stream else WINDOWS)

    def _windows(self, folder: Path, mode: str, rows: Rows, needed: int) -> Iterator[str]:
        if len(rows) != needed:
            yield f"{self._where(folder)}: {len(rows)} windows, needed {needed}"
        seconds = [
            row["power"]["elapsed_s"] if mode == "energy" else row["infer"]["elapsed_time"] / 1e6 for row in rows
        ]
        if min(seconds) < LEAST_WINDOW_S:
            yield f"{self._where(folder)}: a window lasts {min(seconds):.3f} s, needed {LEAST_WINDOW_S:g} s"
        if mode == "energy" and any(row["power"].get("measurement_point") not in _POINTS for row in rows):
            yield f"{self._where(folder)}: no measurement point, needed one of {', '.join(_POINTS)} in each row"

    def _detections(self, folder: Path, task: Task, rows: Rows) -> Iterator[str]:
        misses, alarms = (sum(row["counts"][index] for row in rows) for index in (1, 2))
        if max(misses, alarms) > task.target and self.root.parent.name == "closed":
            yield f"{self._where(folder)}: {misses} misses and {alarms} false alarms, at most {task.target:g} of each"

    def _pages(self) -> Iterator[str]:
        """Where a twin had a hand in it, each page says so."""
        if not self.virtual:
            return
        pages = [*self.root.rglob("*.txt"), *self.root.rglob("README.md"), *(self.root / "systems").glob("*.json")]
        pages += list((self.root / "results").rglob("*.json"))
        for path in sorted(pages):
            if VIRTUAL not in path.read_text(errors="replace"):
                yield f"{self._where(path)}: does not say that it is a twin's: {VIRTUAL.partition('.')[0]!r}"


def _recomputed(mode: str, task: Task) -> Callable[[Rows], Sequence[str]]:
    if task.stream and mode != "energy":
        return stream_lines
    if mode == "performance":
        return lambda rows: [throughput(rows)]
    if mode == "accuracy":
        return lambda rows: accuracy_lines(task, rows)
    return lambda rows: [energy_line(rows)]


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
