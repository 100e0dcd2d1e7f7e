"""`pipeline compare`: the first subject is the base, every other one is held against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.stage import Answer
from stages.tools.comparison.findings import config_changes, findings
from stages.tools.comparison.limits import parse_limit
from stages.tools.comparison.sheets import Compared, comparison_text, verdict_sentence
from stages.tools.comparison.subjects import read_subject
from stages.tools.comparison.tests_of_difference import wilson


def compare(
    subjects: Sequence[tuple[str, Path]], fail_on: Sequence[str] = (), markdown: bool = False, page: Path | None = None
) -> Answer:
    """The table as text or Markdown, everything as plain values; a page if asked for."""
    if len(subjects) < 2:
        raise ConfigError("compare: found one run, needed two or more")
    limits = [parse_limit(text) for text in fail_on]
    base, *others = (read_subject(name, path) for name, path in subjects)
    every = []
    for other in others:
        found = findings(base, other)
        if all(one.verdict == "missing" for one in found):
            raise ConfigError(f"{other.name}: nothing to compare with {base.name}; they share no board and source")
        broken = [(limit.text, one) for limit in limits for one in limit.broken_by(found)]
        every.append(Compared(base, other, tuple(found), config_changes(base, other), tuple(broken)))
    if page is not None:
        from stages.tools.comparison.page import write_page  # pandas and the charts

        write_page(page, every)
    record = {"base": base.name, "compared": [_record(each) for each in every]}
    record["failed"] = [text for each in every for text, _ in each.broken]
    text = "\n\n".join(comparison_text(each, markdown) for each in every)
    return Answer(text, record)


def _record(each: Compared) -> dict[str, Any]:
    shares = {one.column: one for one in each.found}
    found = [{**asdict(one), "change": one.change} for one in each.found]
    intervals = {}
    for name, subject, value in (
        ("base", each.base, shares.get("accuracy_int8") and shares["accuracy_int8"].base),
        ("other", each.other, shares.get("accuracy_int8") and shares["accuracy_int8"].other),
    ):
        n = next((int(float(row["accuracy_n"])) for row in subject.rows.values() if row.get("accuracy_n")), None)
        intervals[name] = wilson(value, n) if value is not None and n else None
    return {
        **{"name": each.other.name, "verdict": verdict_sentence(each), "accuracy_intervals": intervals},
        **{"findings": found, "configuration": {key: list(pair) for key, pair in each.settings.items()}},
        "failed": [{"limit": text, "where": one.where, "column": one.column} for text, one in each.broken],
    }
