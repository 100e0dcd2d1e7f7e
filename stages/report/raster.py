"""SVG to PNG, for slides and papers: white behind it, twice as many pixels.

The letters come from a package, so every machine draws the same bytes, one without any font among them.
"""

from __future__ import annotations

import font_roboto
import resvg_py

_ZOOM = 2  # sharp where a page is printed or a screen is fine


def png(svg: str) -> bytes:
    """The picture as a PNG file."""
    found: bytes = resvg_py.svg_to_bytes(
        svg_string=svg,
        background="white",
        zoom=_ZOOM,
        skip_system_fonts=True,
        font_files=[font_roboto.Roboto, font_roboto.RobotoBold],
        sans_serif_family="Roboto",
    )
    return found
