"""Text from outside, made fit for pages and pictures: names of classes, layers and files may hold anything."""

from __future__ import annotations

# Control characters would make an SVG unreadable and a terminal obey: each becomes its picture. So do halves of pairs.
_PICTURES = {code: 0x2400 + code for code in range(32)} | {127: 0x2421} | dict.fromkeys(range(128, 160), 0xFFFD)
_PICTURES |= dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)


def visible(text: str) -> str:
    """The same text with nothing that acts instead of being read."""
    return text.translate(_PICTURES)
