"""Words of Vega-Lite that the charts share. Fields are always columns that we name ourselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]
# Of rows with names; where they are too narrow for all names, some are left out.
ROW_AXIS = {"ticks": False, "domain": False, "labelOverlap": "greedy"}
_KINDS = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}


def field(name: str, kind: str = "Q", title: str | None = None, **more: Any) -> Spec:
    """A channel of an encoding; no title: none is drawn."""
    return {"field": name, "type": _KINDS[kind], "title": title, **more}


def hover(**columns: str) -> list[Spec]:
    """What stands under the pointer: column=title, or column='title|format' for numbers."""
    shown = []
    for name, words in columns.items():
        title, _, number = words.partition("|")
        shown.append(field(name, "Q" if number else "N", title, **({"format": number} if number else {})))
    return shown


def colours(table: Mapping[str, str], **more: Any) -> Spec:
    """A scale with its colours, in this order."""
    return {"domain": list(table), "range": list(table.values()), **more}


def rows_height(rows: int, each: int = 22, least: int = 90, most: int = 900) -> int:
    """Of a chart with one horizontal bar per row; many rows are narrower."""
    return max(least, min(each * rows, most) + 30)


def labelled(indices: Sequence[object], names: Sequence[object]) -> list[str]:
    """Names that stay apart on an axis, though two ops may have the same one."""
    return [f"{index} {name}" for index, name in zip(indices, names, strict=True)]
