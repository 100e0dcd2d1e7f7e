"""charting: the chart library as one script. It takes a second to make, and depends on an installed version alone.

Reads   nothing
Writes  vega.js
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import stage


@dataclass(frozen=True, kw_only=True)
class Charting:
    chart_library: Path  # vega.js


@stage("charting", packages=("vl-convert-python",))
def run(*, out_dir: Path) -> Charting:
    from stages.charting.library import chart_library

    path = out_dir / "vega.js"
    path.write_text(chart_library())
    return Charting(chart_library=path)
