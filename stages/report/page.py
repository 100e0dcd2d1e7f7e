"""report.html: the table, what each op takes on each board, how the network was pruned.

One file, no script; whatever goes into it is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from stages.report.chart import layer_chart
from stages.report.figures import BoardFigures, NetworkFigures, read_rows
from stages.report.raster import png
from stages.report.terminal import table_text

_COLUMNS = {"cycles": "cycles, measured", "cycles_modelled": "cycles, modelled", "instructions": "instructions"}


def charts(boards: Sequence[BoardFigures], device_layers: Mapping[str, Path]) -> dict[str, str]:
    """layers_<board>: an SVG of the best that is known about its ops, measured before modelled before counted."""
    drawn = {}
    for figures in boards:
        rows = read_rows(device_layers[figures.board])
        column = next((name for name in _COLUMNS if rows and all(row[name] != "" for row in rows)), None)
        if column is not None:
            title = f"{figures.board} ({figures.source}): {_COLUMNS[column]} per op"
            drawn[f"layers_{figures.board}"] = layer_chart(title, rows, column)
    return drawn


def write_figures(folder: Path, drawn: Mapping[str, str]) -> Path:
    """Two files per figure, SVG and PNG."""
    folder.mkdir()
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(svg)
        (folder / f"{name}.png").write_bytes(png(svg))
    return folder


def write_page(path: Path, network: NetworkFigures, boards: Sequence[BoardFigures], drawn: Mapping[str, str]) -> Path:
    """The whole page."""
    title = escape(network.experiment)
    path.write_text(
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body>\n<h1>{title}</h1>\n<pre>{escape(table_text(network, boards))}</pre>\n"
        + "\n".join(drawn.values())
        + "</body>\n</html>\n"
    )
    return path
