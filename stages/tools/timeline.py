"""Memory over time as SVG: op on x, bytes on y, every activation as a block at its place in the arena.

Hand-made, so that it needs no plotting library, and the same bytes for the same graph. Blocks and columns carry titles
that a browser shows under the pointer. An op that works in place shares its column with the operand it writes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import ArenaLayout
from stages.graph.memory.memory_record import StoredTensor, memory_record

_LEFT, _TOP, _RIGHT, _PLOT_HEIGHT, _LEGEND = 84, 64, 132, 360, 30  # pixels
_LABELS = 150  # below the axis, for the names of the ops
_WIDEST, _NARROWEST, _PLOT_WIDTH = 72.0, 3.0, 980.0
_LABEL_WIDTH = 11.0  # narrower columns have no name under them, only a number here and there
_RARE_LABEL = 10
_CHARACTER = 6.7  # of 10.5 px sans-serif, on average and a bit
_INK, _FAINT, _GRID, _HOT = "#1f2933", "#6b7785", "#e3e7ec", "#c2362f"
_FILLS = {  # by the op that computes the tensor
    "input": "#9aa5b1",
    "CONV_2D": "#3d74b8",
    "DEPTHWISE_CONV_2D": "#39a0a8",
    "FULLY_CONNECTED": "#7a5bb0",
    "ADD": "#d9892b",
    "MUL": "#d9892b",
    "AVERAGE_POOL_2D": "#5d9e4c",
    "MAX_POOL_2D": "#5d9e4c",
    "MEAN": "#5d9e4c",
    "CONCATENATION": "#b8608f",
    "RESHAPE": "#b9b0a2",
}
_OTHER_FILL = "#8a7358"


def timeline(graph: Graph, layout: ArenaLayout, title: str) -> str:
    """The picture of a graph whose ops run in the order in which they stand."""
    count = len(graph.ops)
    column = min(_WIDEST, max(_NARROWEST, _PLOT_WIDTH / count))
    width, height = _LEFT + count * column + _RIGHT, _TOP + _PLOT_HEIGHT + _LABELS
    axis = _Axis(column, _PLOT_HEIGHT / _ceiling(layout.arena_bytes))
    blocks = memory_record(graph, layout).tensors
    hottest = max(range(count), key=lambda op: layout.live_bytes[op])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="10.5" fill="{_INK}">',
        f'<rect width="{width:.0f}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
        *_legend(blocks),
        *_scale_lines(axis, layout.arena_bytes, count),
        f'<rect x="{axis.x(hottest):.1f}" y="{_TOP}" width="{column:.1f}" height="{_PLOT_HEIGHT}" fill="#fbe9e7"/>',
        *(_block(axis, block) for block in blocks),
        *_columns(axis, graph, layout, hottest),
        *_arena_line(axis, layout, count),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Axis:
    """From ops and bytes to pixels."""

    column: float
    pixels_per_byte: float

    def x(self, op: float) -> float:
        return _LEFT + op * self.column

    def y(self, offset: float) -> float:
        return _TOP + _PLOT_HEIGHT - offset * self.pixels_per_byte


def _title(tensor: StoredTensor) -> str:
    shape = "x".join(map(str, tensor.shape))
    ops = f"ops {int(tensor.start)} to {max(int(tensor.start), -int(-tensor.end // 1) - 1)}"
    return f"{tensor.name} ({shape})\n{tensor.kind}\n{tensor.size_bytes:,} B at offset {tensor.offset:,}, {ops}"


def _block(axis: _Axis, block: StoredTensor) -> str:
    left, right = axis.x(block.start) + 0.5, axis.x(block.end) - 0.5
    top, bottom = axis.y(block.offset + block.size_bytes), axis.y(block.offset)
    height = max(1.0, bottom - top - 0.8)
    fill = _FILLS.get(block.kind, _OTHER_FILL)
    shape = (
        f'<rect x="{left:.1f}" y="{top + 0.4:.1f}" width="{max(1.0, right - left):.1f}" height="{height:.1f}" rx="2" '
        f'fill="{fill}" fill-opacity="0.88"><title>{escape(_title(block))}</title></rect>'
    )
    room = int((right - left - 8) / _CHARACTER)
    if height < 13 or room < 3:
        return shape
    text = _shortened(block.name, room)
    middle = top + height / 2 + 3.8
    label = f'<text x="{left + 5:.1f}" y="{middle:.1f}" fill="#ffffff" pointer-events="none">{escape(text)}</text>'
    return f"{shape}\n{label}"


def _columns(axis: _Axis, graph: Graph, layout: ArenaLayout, hottest: int) -> list[str]:
    """The ops below the axis, each with a title, and how much of the arena is alive during it as a mark on top."""
    parts = []
    bottom = _TOP + _PLOT_HEIGHT
    for now, op in enumerate(graph.ops):
        live = layout.live_bytes[now]
        words = f"op {now}: {op.title}\n{live:,} B alive"
        middle = axis.x(now + 0.5)
        colour = _HOT if now == hottest else _FAINT
        if axis.column >= _LABEL_WIDTH or now % _RARE_LABEL == 0:
            name = f"{now} {op.kind}" if axis.column >= _LABEL_WIDTH else str(now)
            weight = ' font-weight="bold"' if now == hottest else ""
            parts.append(
                f'<text transform="translate({middle + 3:.1f} {bottom + 12}) rotate(-55)" text-anchor="end" '
                f'fill="{colour}"{weight}>{escape(name)}<title>{escape(words)}</title></text>'
            )
        parts.append(
            f'<line x1="{axis.x(now):.1f}" x2="{axis.x(now + 1):.1f}" y1="{axis.y(live):.1f}" y2="{axis.y(live):.1f}" '
            f'stroke="{_HOT}" stroke-width="1.2" stroke-opacity="0.75"><title>{escape(words)}</title></line>'
        )
    return parts


def _arena_line(axis: _Axis, layout: ArenaLayout, count: int) -> list[str]:
    right, level = axis.x(count), axis.y(layout.arena_bytes)
    note = "minimal" if layout.proven_optimal else f"≥ {layout.lower_bound_bytes:,} B"
    return [
        f'<line x1="{_LEFT}" x2="{right + 8:.1f}" y1="{level:.1f}" y2="{level:.1f}" stroke="{_INK}" '
        'stroke-width="1.4" stroke-dasharray="6 4"/>',
        f'<text x="{right + 12:.1f}" y="{level + 1:.1f}" font-weight="bold">arena {layout.arena_bytes:,} B</text>',
        f'<text x="{right + 12:.1f}" y="{level + 15:.1f}" fill="{_FAINT}">{escape(note)}</text>',
    ]


def _scale_lines(axis: _Axis, arena_bytes: int, count: int) -> list[str]:
    step = _step(arena_bytes)
    parts = []
    for value in range(0, _ceiling(arena_bytes) + 1, step):
        level = axis.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{axis.x(count):.1f}" y1="{level:.1f}" y2="{level:.1f}" stroke="{_GRID}"/>'
            f'<text x="{_LEFT - 8}" y="{level + 3.5:.1f}" text-anchor="end" fill="{_FAINT}">{value:,}</text>'
        )
    parts.append(f'<text x="{_LEFT - 8}" y="{_TOP - 10}" text-anchor="end" fill="{_FAINT}">bytes</text>')
    return parts


def _legend(blocks: Sequence[StoredTensor]) -> list[str]:
    parts, x = [], float(_LEFT)
    y = _TOP - _LEGEND + 8
    for kind in dict.fromkeys(block.kind for block in blocks):
        fill = _FILLS.get(kind, _OTHER_FILL)
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" rx="2" fill="{fill}"/>'
            f'<text x="{x + 14:.1f}" y="{y}" fill="{_FAINT}">{escape(kind)}</text>'
        )
        x += 14 + _CHARACTER * len(kind) + 16
    parts.append(
        f'<line x1="{x:.1f}" x2="{x + 12:.1f}" y1="{y - 4}" y2="{y - 4}" stroke="{_HOT}" stroke-width="1.2"/>'
        f'<text x="{x + 16:.1f}" y="{y}" fill="{_FAINT}">bytes alive</text>'
    )
    return parts


def _step(arena_bytes: int) -> int:
    """1, 2 or 5 times a power of ten, so that four to ten lines cover the arena."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if arena_bytes <= 8 * factor * step:
                return factor * step
        step *= 10


def _ceiling(arena_bytes: int) -> int:
    step = _step(arena_bytes)
    return max(step, -(-arena_bytes // step) * step)


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"…{text[len(text) - room + 1 :]}"
