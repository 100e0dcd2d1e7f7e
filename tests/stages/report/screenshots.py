"""The two pictures of a report in the README: on a desk by day, on a phone by night.

python -m tests.stages.report.screenshots [report.html]     # without one: the newest quick run's
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from tests.stages.report.browser import open_page

FOLDER = Path("stages/report/screenshots")
REPORT = Path("runs/kws_dscnn_s-quick/latest/report/report.html")
MOST_BYTES = 200_000


def main() -> None:
    report = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT
    FOLDER.mkdir(exist_ok=True)
    with open_page() as page:
        for name, width, height, dark in (("desktop_light", 1280, 1100, False), ("phone_dark", 390, 1100, True)):
            page.resize(width, height, dark=dark, scale=1 if width > 1000 else 1.5)
            page.open(report)
            path = page.screenshot(FOLDER / f"{name}.png")
            with Image.open(path) as picture:  # a page has few colours
                picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
            assert path.stat().st_size <= MOST_BYTES, path
            sys.stdout.write(f"{path}: {path.stat().st_size:,} B\n")


if __name__ == "__main__":
    main()
