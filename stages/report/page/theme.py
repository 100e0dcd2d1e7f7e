"""Colours and letters of pages and charts.

Everything is described in the light theme; `DARK` says what each colour becomes in the dark one, in the page's style
sheet as in its charts. Text has a contrast of at least 4.5 on what it stands on, marks of at least 3 (WCAG AA).
"""

from __future__ import annotations

from typing import Any

INK, SOFT, LINE, SURFACE, GROUND = "#1b2733", "#55616e", "#dfe4ea", "#ffffff", "#f4f6f8"
ACCENT, GOOD, BAD, WARN = "#1c63c4", "#1a7a48", "#c4302a", "#8a5900"
GOOD_GROUND, BAD_GROUND, WARN_GROUND = "#e5f4ec", "#fcebe9", "#fdf3dc"
BEFORE = "#8592a1"
SERIES = ("#2f6fb5", "#c25f18", "#17868b", "#7a55b5", "#47862f", "#b5467f", "#8a6a3b", "#5f6b78")
# Cells of a matrix: nothing, then rising shares of right and wrong answers; the last two of each carry light letters.
EMPTY = "#f1f4f7"
RIGHT = ("#d5e4f5", "#a8c8eb", "#2e6db3", "#1a4d87")
WRONG = ("#f9dfd9", "#f2b5aa", "#c5372f", "#96211b")
ON_PALE, ON_STRONG = "#1b2734", "#fffffe"

DARK = {
    **{INK: "#e8edf2", SOFT: "#a6b3c0", LINE: "#2e3a46", SURFACE: "#17202a", GROUND: "#0e141b"},
    **{ACCENT: "#79b5ff", GOOD: "#5ad394", BAD: "#ff8f86", WARN: "#f2bd55"},
    **{GOOD_GROUND: "#12301f", BAD_GROUND: "#3a1a18", WARN_GROUND: "#33270d"},
    **{BEFORE: "#7d8b9a"},
    **dict(
        zip(
            SERIES,
            ("#6fb1f5", "#f59a55", "#45c3c8", "#b597f2", "#8bcf70", "#ee88ba", "#d0ae7b", "#a8b4c1"),
            strict=True,
        )
    ),
    **{EMPTY: "#1c2731"},
    **dict(zip(RIGHT, ("#203a56", "#2b5583", "#6fb1f6", "#a3cffa"), strict=True)),
    **dict(zip(WRONG, ("#472724", "#6e332d", "#ff9188", "#ffbcb6"), strict=True)),
    **{ON_PALE: "#e8edf3", ON_STRONG: "#0e141c"},
}
FONT = 'Roboto, "Segoe UI", "Helvetica Neue", Arial, sans-serif'

CONFIG: dict[str, Any] = {  # of Vega-Lite
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **{"labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE},
        **{"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "titlePadding": 8, "labelLimit": 130},
        "labelPadding": 5,
    },
    "legend": {
        **{
            "labelColor": INK,
            "titleColor": SOFT,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
        },
        **{"orient": "top", "direction": "horizontal", "symbolType": "square", "labelLimit": 220, "offset": 6},
        # As many beside each other as there is room for.
        "columns": {"expr": "max(1, floor((isFinite(containerSize()[0]) ? containerSize()[0] : 760) / 190))"},
    },
    "title": {"color": INK, "subtitleColor": SOFT, "fontSize": 15, "subtitleFontSize": 12, "anchor": "start"},
    "range": {"category": list(SERIES)},
    "bar": {"color": SERIES[0], "cornerRadiusEnd": 2},
    "rect": {"color": SERIES[0]},
    "line": {"color": SERIES[0], "strokeWidth": 2},
    "point": {"color": SERIES[0], "filled": True, "size": 45},
    "area": {"color": SERIES[0]},
    "rule": {"color": INK},
    "text": {"color": INK, "fontSize": 11},
    "background": None,
}


def light(colour: str) -> str:
    return colour


def dark(colour: str) -> str:
    return DARK[colour]
