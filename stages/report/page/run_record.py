"""The provenance of a page. A report is a pure function of its inputs, so which run shows it is filled in afterwards.

A page carries an empty record; whoever keeps the run puts its run.json there, and the page's script shows it. Nothing
heavy is imported here: every run does this, cached ones too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

EMPTY_RECORD = '<script type="application/json" id="run-record">null</script>'


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no `<` that could end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def with_run(page: str, record: Mapping[str, Any]) -> str:
    """The page of one run; `record` is its run.json, of which `command` reproduces it."""
    before, slot, after = page.partition(EMPTY_RECORD)
    if not slot:
        return page  # filled in already: a run's page stays what it is
    return before + EMPTY_RECORD.replace("null", script_json(dict(record))) + after
