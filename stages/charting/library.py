"""Vega as one script, from the installed vl-convert: a page needs no network."""

from __future__ import annotations

import vl_convert


def chart_library() -> str:
    """Without anything that would end the script element that it stands in."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
