"""Lines and bars as SVG: hand-made, so that the report needs no plotting library, and the same bytes every time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _TOP, _RIGHT, _BOTTOM, _WIDTH, _HEIGHT = 70, 54, 190, 44, 560, 240  # pixels
_INK, _FAINT, _GRID = "#1f2933", "#6b7785", "#e3e7ec"
COLOURS = ("#3d74b8", "#c2362f", "#5d9e4c", "#7a5bb0")
_BEFORE, _AFTER = "#c3ccd6", "#3d74b8"
_BAR_WIDTH, _WIDEST_PANEL = 14.0, 900.0
_LABELS = 120  # below bars, for their names
_NAME_CHARACTERS = 24


@dataclass(frozen=True)
class Series:
    """A line: points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


def ratio_plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """Lines of ratios on a logarithmic axis, with a line across at 1."""
    return _lines(title, x_label, y_label, series, level=1.0)


def line_plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """Lines on an axis from 0."""
    return _lines(title, x_label, y_label, series, level=None)


def _lines(title: str, x_label: str, y_label: str, series: Sequence[Series], level: float | None) -> str:
    points = [point for line in series for point in line.points]
    if not points:
        return ""
    values = [y for _, y in points]
    scale = (
        _Scale(min(0.0, *values), max(values), is_log=False)
        if level is None
        else _Scale(min(level, *values), max(level, *values), is_log=True)
    )
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def x_of(x: float) -> float:
        return _LEFT + _WIDTH * (x - first) / ((last - first) or 1)

    parts = [*_frame(title, y_label, _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM), *_grid(scale, _WIDTH)]
    parts += [
        f'<text x="{x_of(x):.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle" fill="{_FAINT}">{x:g}</text>'
        for x in dict.fromkeys((first, (first + last) / 2, last))
    ]
    parts.append(
        f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 32}" text-anchor="middle">{escape(x_label)}</text>'
    )
    if level is not None:
        height = scale.y(level)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{height:.1f}" y2="{height:.1f}" stroke="{_INK}" '
            'stroke-width="1.3"/>'
        )
    for number, line in enumerate(series):
        path = " ".join(f"{x_of(x):.1f},{scale.y(y):.1f}" for x, y in line.points)
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="1.8"{dashes}/>')
        top = _TOP + 12 + 18 * number
        parts.append(
            f'<line x1="{_LEFT + _WIDTH + 12}" x2="{_LEFT + _WIDTH + 34}" y1="{top - 4}" y2="{top - 4}" '
            f'stroke="{line.colour}" stroke-width="1.8"{dashes}/>'
            f'<text x="{_LEFT + _WIDTH + 40}" y="{top}">{escape(line.name)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def pair_bars(title: str, y_label: str, names: Sequence[str], before: Sequence[int], after: Sequence[int]) -> str:
    """For each name a pale bar (before) and a dark one in front of it (after)."""
    if not names:
        return ""
    column = min(2 * _BAR_WIDTH, _WIDEST_PANEL / len(names))
    width = max(column * len(names), 200.0)
    scale = _Scale(0.0, float(max(*before, *after, 1)), False)
    bottom = _TOP + _HEIGHT
    parts = [*_frame(title, y_label, _LEFT + width + _RIGHT, bottom + _LABELS), *_grid(scale, width)]
    for number, (name, old, new) in enumerate(zip(names, before, after, strict=True)):
        left = _LEFT + number * column
        words = escape(f"{name}: {old:,} before, {new:,} after")
        for value, colour, share in ((old, _BEFORE, 0.86), (new, _AFTER, 0.56)):
            top, thick = scale.y(value), column * share
            parts.append(
                f'<rect x="{left + (column - thick) / 2:.1f}" y="{top:.1f}" width="{thick:.1f}" '
                f'height="{bottom - top:.1f}" fill="{colour}"><title>{words}</title></rect>'
            )
        if column >= 9 or number % 5 == 0:
            x = left + column / 2 + 3
            parts.append(
                f'<text transform="translate({x:.1f} {bottom + 10}) rotate(-60)" text-anchor="end" fill="{_FAINT}" '
                f'font-size="10">{escape(_shortened(name))}</text>'
            )
    for number, (word, colour) in enumerate((("before", _BEFORE), ("after", _AFTER))):
        top = _TOP + 12 + 18 * number
        parts.append(
            f'<rect x="{_LEFT + width + 14:.1f}" y="{top - 10}" width="11" height="11" fill="{colour}"/>'
            f'<text x="{_LEFT + width + 30:.1f}" y="{top}">{word}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class _Scale:
    """From values to pixels, straight or logarithmic."""

    low: float
    high: float
    is_log: bool

    def y(self, value: float) -> float:
        low, high, value = (math.log(v) if self.is_log else v for v in (self.low, self.high, value))
        return _TOP + _HEIGHT * (1 - (value - low) / ((high - low) or 1))

    def ticks(self) -> list[float]:
        """Round values that cover the scale."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        else:
            step = 10.0 ** math.floor(math.log10(((self.high - self.low) or 1) / 4))
            step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (factor * step) <= 6)
            found = [step * n for n in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [value for value in found if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]


def _frame(title: str, y_label: str, width: float, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="11" fill="{_INK}">',
        f'<text x="0" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<text x="0" y="{_TOP - 12}" fill="{_FAINT}">{escape(y_label)}</text>',
    ]


def _grid(scale: _Scale, width: float) -> list[str]:
    return [
        f'<line x1="{_LEFT}" x2="{_LEFT + width:.1f}" y1="{scale.y(value):.1f}" y2="{scale.y(value):.1f}" '
        f'stroke="{_GRID}"/><text x="{_LEFT - 6}" y="{scale.y(value) + 4:.1f}" text-anchor="end" fill="{_FAINT}">'
        f"{_number(value)}</text>"
        for value in scale.ticks()
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else f"…{name[1 - _NAME_CHARACTERS :]}"
