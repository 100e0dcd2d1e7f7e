"""A bar chart of what each op takes, as SVG: hand-made, so that the report needs no plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_BAR, _GAP, _LABEL, _WIDTH, _FIGURE = 16, 6, 330, 480, 150  # in pixels
_LABEL_CHARACTERS = 48  # what fits in _LABEL pixels


def layer_chart(title: str, rows: Sequence[Mapping[str, str]], column: str) -> str:
    """One horizontal bar per op, as long as its share of the largest."""
    values = [int(row[column]) for row in rows]
    largest, total = max(values, default=0) or 1, sum(values) or 1
    height = 40 + len(rows) * (_BAR + _GAP)
    width = _LABEL + _WIDTH + _FIGURE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<text x="0" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (row, value) in enumerate(zip(rows, values, strict=True)):
        top = 32 + index * (_BAR + _GAP)
        length = round(_WIDTH * value / largest, 1)
        label = f"{row['index']} {row['op']} {row['name']}"[:_LABEL_CHARACTERS]
        parts += [
            f'<text x="0" y="{top + 12}">{escape(label)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length}" height="{_BAR}" fill="#4472a8"/>',
            f'<text x="{_LABEL + length + 6}" y="{top + 12}">{value:,} ({100 * value / total:.1f} %)</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
