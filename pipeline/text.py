"""Names that somebody else chose, shown as text: in a terminal, a CSV file and Markdown, whatever they hold."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

_FORMULA = tuple("=+-@\t\r")  # what a spreadsheet takes for the start of one
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


def shown(text: object) -> str:
    """Escapes, line ends and marks of direction written out, so that no name moves the cursor or hides."""
    plain = str(text)
    return plain if plain.isprintable() else "".join(map(_written_out, plain))


def csv_cell(value: object) -> str:
    """Nothing for None, no noise of binary fractions, true and false in small letters, and never a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:.9g}" if isinstance(value, float) else str(value)
    text = shown(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def csv_text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """CSV of these columns; what a row has not is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([csv_cell(column) for column in columns])
    writer.writerows([csv_cell(row.get(column)) for column in columns] for row in rows)
    return stream.getvalue()


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head; the first column to the left, the others to the right."""
    lines = ["| " + " | ".join(markdown_text(cell) for cell in row) + " |" for row in rows]
    ruler = "|" + "|".join(":--" if column == 0 else "--:" for column in range(len(rows[0]))) + "|"
    return "\n".join([lines[0], ruler, *lines[1:]])


def aligned(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> list[str]:
    """Columns as wide as their widest cell, those of `left` to the left, the others to the right."""
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    to_left = set(left)
    return [
        "  ".join(
            cell.ljust(width) if number in to_left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def markdown_text(text: str) -> str:
    """One line in which nothing is markup."""
    return _MARKDOWN.sub(r"\\\1", shown(text).replace("&", "&amp;"))


def _written_out(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
