"""What was found between two sides -> tables and sentences, for terminal, Markdown and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.text import aligned, markdown_table, shown
from stages.tools.comparison.findings import Finding
from stages.tools.comparison.subjects import Subject

_TITLES = {
    **{"accuracy_int8": "int8 accuracy", "size_bytes": "size B", "peak_bytes": "peak B", "macs": "MACs"},
    **{"arena_bytes": "arena B", "flash_bytes": "flash B", "ram_bytes": "RAM B", "stack_high_water_bytes": "stack B"},
    **{"cycles_modelled": "cycles modelled", "latency_ms_modelled": "ms modelled", "latency_ms": "ms measured"},
    **{"energy_mj_modelled": "mJ modelled", "energy_mj": "mJ measured"},
}
_MOST_LAYERS = 8  # in text: those that moved most
_MOST_SETTINGS = 40


@dataclass(frozen=True, eq=False)
class Compared:
    """One side against the base."""

    base: Subject
    other: Subject
    found: tuple[Finding, ...]
    settings: dict[str, tuple[object, object]]
    broken: tuple[tuple[str, Finding], ...]

    @property
    def certain(self) -> list[Finding]:
        return [one for one in self.found if one.is_certain]


def verdict_sentence(each: Compared) -> str:
    """What is certain, in one line."""
    words = []
    for verdict in ("worse", "better"):
        whole = [one for one in each.certain if one.verdict == verdict and not one.is_layer]
        layers = [one for one in each.certain if one.verdict == verdict and one.is_layer]
        titles = dict.fromkeys(_TITLES.get(one.column, one.column) for one in whole)
        named = [f"{title} {_moved(whole, title)}" for title in titles]
        named += [f"{len(layers)} layer{'s' * (len(layers) > 1)}"] if layers else []
        words += [f"{verdict}: {', '.join(named)}"] if named else []
    noise = sum(one.verdict == "noise" for one in each.found)
    told = "; ".join(words) or "equal: nothing differs by more than noise"
    return told + (f" ({noise} differences are noise)" if noise else "")


def _moved(found: Sequence[Finding], title: str) -> str:
    """How much, on one board or on several."""
    return " and ".join(dict.fromkeys(_change(one) for one in found if _TITLES.get(one.column, one.column) == title))


def figure_rows(each: Compared) -> list[list[str]]:
    """Head and one row per figure, layers left out."""
    head = ["", "figure", each.base.name, each.other.name, "change", "verdict"]
    return [head, *(_cells(one, each) for one in each.found if not one.is_layer)]


def layer_rows(each: Compared, most: int | None = None) -> list[list[str]]:
    """The same for layers that differ, those first that moved most."""
    moved = [one for one in each.found if one.is_layer and one.verdict != "same"]
    moved.sort(key=lambda one: (not one.is_certain, -abs((one.other or 0) - (one.base or 0))))
    head = ["layer", "figure", each.base.name, each.other.name, "change", "verdict"]
    return [head, *(_cells(one, each) for one in moved[:most])]


def setting_rows(each: Compared) -> list[list[str]]:
    pairs = [[key, _plain(before), _plain(after)] for key, (before, after) in each.settings.items()]
    return [["configuration", each.base.name, each.other.name], *pairs[:_MOST_SETTINGS]]


def comparison_text(each: Compared, markdown: bool) -> str:
    tables = [figure_rows(each), layer_rows(each, _MOST_LAYERS), setting_rows(each)]
    held = [table for table in tables if len(table) > 1]
    notes = [f"{_TITLES[one.column]}: {one.how}" for one in each.found if one.column == "accuracy_int8" and one.how]
    notes += [f"--fail-on {text!r}: {_where(one)} {_change(one)}".rstrip() for text, one in each.broken]
    head = f"{each.other.name} against {each.base.name}: {verdict_sentence(each)}"
    if markdown:
        parts = [f"**{_bold(head)}**", *(markdown_table(table) for table in held)]
        return "\n\n".join([*parts, *(f"- {_bold(note)}" for note in notes)])
    lines = [shown(head)]
    for table in held:
        lines += ["", *(f"  {line}" for line in aligned(table, (0, 1)))]
    return "\n".join([*lines, *([""] if notes else []), *map(shown, notes)])


def _bold(text: str) -> str:
    return markdown_table([[text]]).splitlines()[0][2:-2]


def _cells(one: Finding, each: Compared) -> list[str]:
    values = [_value(one, side) for side in (0, 1)]
    title = _TITLES.get(one.column, one.column)
    p = "" if one.p is None or one.verdict == "same" else " (p < 0.0001)" if one.p < 1e-4 else f" (p {one.p:.2g})"
    return [one.where, title, *values, _change(one), f"{one.verdict}{p}"]


def _value(one: Finding, side: int) -> str:
    value, spread = (one.base, one.other)[side], one.two_sigma[side]
    if value is None:
        return "-"
    if one.column == "accuracy_int8":
        return f"{100 * value:.2f} %"
    text = f"{value:,.0f}" if float(value).is_integer() and "ms" not in one.column else f"{value:,.4g}"
    if one.column.startswith(("latency", "energy")):
        text = f"{value:,.4f}" if one.is_layer else f"{value:,.3f}"
    return text if spread is None else f"{text} ± {spread:.2g}"


def _change(one: Finding) -> str:
    if one.base is None or one.other is None or one.verdict == "same":
        return ""
    if one.column == "accuracy_int8":
        return f"{100 * (one.other - one.base):+.2f} points"
    return "" if one.change is None else f"{100 * one.change:+.2f} %"


def _where(one: Finding) -> str:
    return " ".join(filter(None, [one.where, _TITLES.get(one.column, one.column)]))


def _plain(value: object) -> str:
    return "-" if value is None else str(value)
