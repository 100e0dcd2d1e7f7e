"""zoo: the cards as a table for the terminal, and as the page `README.md` beside what others have published.

The figures of others are in `data/zoo/references.yaml`, each with its source; they stand in tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer
from pipeline.text import aligned, markdown_table, markdown_text
from stages.tools.output_file import write_atomically
from stages.tools.zoo.cards import PACKAGED, Card, networks, own_zoo, read_card, verified_model

PAGE, REFERENCES = "README.md", "references.yaml"
_NONE = "-"
_AHEAD = """# The zoo: networks that were trained here, with the numbers to check them by

Made by `pipeline zoo --page` from the cards; `pipeline publish RUN` adds a network. Each is an int8 `.tflite` with its
arena plan and its task (classes, front end) inside; `card.yaml` says where it comes from. `zoo:NAME` is taken wherever
a `MODEL.tflite` is; a file that is not the one of its card is refused by its sha256.

    pipeline zoo
    pipeline evaluate zoo:NAME --data SOURCE --set data.root=FOLDER   # the accuracy of the card, to the example
    pipeline measure zoo:NAME --board nucleo_f767zi --virtual

Accuracies are of the test split, int8, with their standard error; choices were made on validation alone. Times and
energy marked m are **modelled** on a virtual twin: no board has run them. Figures of others are theirs, on their data
and boards, and stand in tables of their own; 1 KB = 1000 B.
"""


def zoo(project: Path, page: bool) -> Answer:
    """What is published, each file held against its card; `page` writes README.md of the project's zoo anew."""
    found: list[Card] = []
    refused: list[str] = []
    for folder in networks(project):
        try:
            found.append(verified_model(folder)[0])
        except StageError as error:
            refused.append(str(error))
    written = [f"written: {write_page(project)}"] if page else []
    record = {"networks": [card.model_dump(mode="json") for card in found], "refused": refused}
    return Answer("\n".join([*_terminal(found), *refused, *written]), record)


def _terminal(cards: Sequence[Card]) -> list[str]:
    if not cards:
        return ["no network is published yet; make one with: pipeline publish RUN"]
    rows = [("zoo:", "data", "int8 accuracy", "n", "size B", "peak B", "MACs", "ms", "licence of the data")]
    for card in cards:
        rows.append(
            (card.name, card.data.source, _accuracy(card), f"{card.accuracy.n:,}", f"{card.size_bytes:,}")
            + (f"{card.peak_bytes:,}", f"{card.macs:,}", _latencies(card), card.data.licence)
        )
    lines = aligned(rows, (0, 1, 8))
    if any(board.latency_ms is None for card in cards for board in card.boards):
        lines.append("m: modelled, on a virtual twin; several boards are parted by a slash")
    return lines


def _accuracy(card: Card) -> str:
    return f"{100 * card.accuracy.int8:.2f} ± {100 * card.accuracy.int8_standard_error:.2f} %"


def _latencies(card: Card) -> str:
    told = []
    for board in card.boards:
        if board.latency_ms is not None:
            told.append(f"{board.latency_ms:.2f}")
        elif board.latency_ms_modelled is not None:
            told.append(f"{board.latency_ms_modelled:.2f}m")
    return "/".join(told) or _NONE


def write_page(project: Path) -> Path:
    """README.md of the project's zoo."""
    place = own_zoo(project)
    if not place.is_dir():
        raise ConfigError(f"{place}: no such folder, needed a zoo; fill it with: pipeline publish RUN")
    own = [folder for folder in networks(project) if folder.parent == place.resolve()]
    write_atomically(place / PAGE, page_text([read_card(folder) for folder in own], references()).encode())
    return place / PAGE


def references() -> Sequence[Mapping[str, Any]]:
    """What others have published."""
    tasks: Sequence[Mapping[str, Any]] = yaml.safe_load((PACKAGED / REFERENCES).read_text())["tasks"]
    return tasks


def page_text(cards: Sequence[Card], tasks: Sequence[Mapping[str, Any]]) -> str:
    """The page, the same for the same cards."""
    parts = [line for task in tasks for line in _task(task, cards)]
    return "\n".join([_AHEAD, *parts, *_rest(cards, tasks)]).rstrip() + "\n"


def _task(task: Mapping[str, Any], cards: Sequence[Card]) -> list[str]:
    own = [card for card in cards if card.data.source in task["sources"]]
    lines = [f"## {task['title']}", *([task["note"], ""] if task.get("note") else [""])]
    lines += [*_own_table(own), ""] if own else ["No network of ours is published yet.", ""]
    columns = ("accuracy", "parameters", "size", "peak", "MACs", "measured", "source")
    rows = [("of others", *columns)]
    rows += [(row["network"], *(str(row.get(column, _NONE)) for column in columns)) for row in task["others"]]
    return [*lines, markdown_table(rows), ""]


def _own_table(cards: Sequence[Card]) -> list[str]:
    rows = [("ours", "int8 accuracy", "n", "float", "size B", "peak B", "MACs", "flash, RAM B", "ms", "mJ", "budgets")]
    for card in cards:
        boards = card.boards
        memory = f"{boards[0].flash_bytes:,}, {boards[0].ram_bytes:,}" if boards else _NONE
        energy = "/".join(
            f"{board.energy_mj:.1f}" if board.energy_mj is not None else f"{board.energy_mj_modelled:.1f}m"
            for board in boards
            if board.energy_mj is not None or board.energy_mj_modelled is not None
        )
        rows.append(
            (card.name, _accuracy(card), f"{card.accuracy.n:,}", f"{100 * card.accuracy.float_network:.2f} %")
            + (f"{card.size_bytes:,}", f"{card.peak_bytes:,}", f"{card.macs:,}", memory, _latencies(card))
            + (energy or _NONE, "hold" if card.fits else "missed")
        )
    told = [
        f"- {card.name}: {card.data.what}; seeds {_seeds(card)}; boards {_boards(card)}"
        + (f"; {markdown_text(card.note)}" if card.note else "")
        for card in cards
    ]
    return [markdown_table(rows), "", *told]


def _seeds(card: Card) -> str:
    return ", ".join(f"{section} {seed}" for section, seed in card.seed.items())


def _boards(card: Card) -> str:
    return "/".join(f"{board.board} {board.clock_hz / 1e6:.0f} MHz ({board.source})" for board in card.boards) or _NONE


def _rest(cards: Sequence[Card], tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Networks on data that nobody here has published figures for."""
    known = {source for task in tasks for source in task["sources"]}
    others = [card for card in cards if card.data.source not in known]
    return ["## Other data", "", *_own_table(others)] if others else []
