"""publish: a finished run becomes a network of the zoo, with a card that only the files of the run have a say in.

Every file that is read has to have the sha256 that run.json gives it. Paths of this machine do not enter the card.
Refuses a run that is not whole, a file that was changed since, a network without its task inside (an export of an
earlier version), and what is too large for a repository.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data import load_manifest
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer
from stages.graph.tflite.task import read_task
from stages.prepare.config import DataConfig
from stages.tools.output_file import write_atomically
from stages.tools.zoo.cards import (
    CARD,
    MODEL,
    MODEL_LIMIT_BYTES,
    ZOO_LIMIT_BYTES,
    AccuracyOfCard,
    BoardOfCard,
    Card,
    DataOfCard,
    card_text,
    check_name,
    own_zoo,
)
from stages.tools.zoo.evaluation import standard_error
from stages.tools.zoo.page import write_page

_ELSEWHERE = ("root", "download_dir")  # of the section `data`: places, not contents
_OF_TRAINING = ("augment", "copies", "mixing")  # of it: what changes no held-out example


def publish(folder: Path, facts: Mapping[str, Any], name: str | None, project: Path, note: str | None = None) -> Answer:
    """Put the network of a run into the zoo of the project, and write its page anew."""
    run = f"{facts['name']}/{facts['id']}"
    if facts["state"] != "done" or not facts["whole"]:
        state = facts["state"] if facts["state"] != "done" else "done with some steps only"
        raise ConfigError(f"{run}: is {state}, needed a whole run; make one with: {facts['command']}")
    called, zoo = check_name(name or str(facts["name"])), own_zoo(project)
    content = _file(folder, facts, "model")
    if read_task(content) is None:
        raise StageError(f"{run}: {MODEL} says nothing of its task, it is of an earlier version; run it again")
    card = _card(folder, facts, called, content).model_copy(update={"note": note})
    _check_size(zoo, called, len(content))
    place = zoo / called
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / MODEL, content)
    write_atomically(place / CARD, card_text(card).encode())  # until then the old card refuses the new file
    write_page(project)
    shown = f"int8 accuracy {100 * card.accuracy.int8:.2f} % of {card.accuracy.n:,}, {len(content):,} B"
    lines = [f"{run} -> zoo:{called}: {shown}", f"in {place}/; check it with: {card.evaluate}"]
    return Answer("\n".join(lines), card.model_dump(mode="json"))


def _card(folder: Path, facts: Mapping[str, Any], name: str, content: bytes) -> Card:
    accuracy, dataset, qat = (json.loads(_file(folder, facts, part)) for part in ("accuracy", "dataset", "qat_metrics"))
    rows = list(csv.DictReader(_file(folder, facts, "summary").decode().splitlines()))
    digest = hashlib.sha256(content).hexdigest()
    if not rows or any(row["model_sha256"] != digest for row in rows):
        raise StageError(f"{folder}: summary.csv is of another network than {MODEL}; run the experiment again")
    git, n = facts["git"] or {}, accuracy["n"]
    of_data = _data(facts["config"]["data"], dataset)
    return Card(
        name=name,
        experiment=facts["experiment"],
        quick=facts["quick"],
        command=_portable(facts["command"]),
        evaluate=_evaluation(name, of_data, facts["config"]["data"]["root"] is not None),
        run_id=facts["id"],
        date=facts["start"],
        commit=git.get("commit"),
        dirty=git.get("dirty"),
        seed=facts["seed"],
        config_digest=facts["config_digest"],
        data=of_data,
        budget={key: limit for key, limit in facts["config"]["budget"].items() if type(limit) in (int, float)},
        fits=all(row["fits"] == "true" for row in rows),
        accuracy=AccuracyOfCard(
            n=n,
            int8=accuracy["accuracy_int8"],
            int8_standard_error=standard_error(accuracy["accuracy_int8"], n),
            float_network=accuracy["accuracy_float"],
            float_standard_error=standard_error(accuracy["accuracy_float"], n),
            validation_float=qat["float"]["validation"],
            validation_int8=qat["fake_quant"]["validation"],
        ),
        boards=tuple(_board(row) for row in rows),
        versions=facts["versions"],
        model_bytes=len(content),
        sha256=digest,
        **{key: int(rows[0][key]) for key in ("size_bytes", "peak_bytes", "arena_bytes", "macs")},
    )


def _data(section: Mapping[str, Any], dataset: Mapping[str, Any]) -> DataOfCard:
    usual = DataConfig(source=section["source"], root="." if section["source"] == "folder" else None)
    settings = {
        key: value
        for key, value in section.items()
        if key not in ("source", *_ELSEWHERE) and value != usual.model_dump(mode="json").get(key)
    }
    # Of two versions of a data set, the one that was found: 'speech_commands_v0.01, local copy of 26662 clips'.
    found = str(dataset["source"]).partition(",")[0]
    own = section["source"] == "folder"
    licence = "the data's own: see their owner" if own else load_manifest(section["source"]).licence
    return DataOfCard(
        source=found if found.startswith("speech_commands") else section["source"],
        settings=settings,
        what="a folder of one's own" if own else dataset["source"],
        licence=licence,
        classes=dataset["classes"],
        examples_sha256=dataset["examples_sha256"],
    )


def _board(row: Mapping[str, str]) -> BoardOfCard:
    """A row of summary.csv; what is empty there is left out."""
    return BoardOfCard.model_validate({key: row[key] for key in BoardOfCard.model_fields if row.get(key)})


def _evaluation(name: str, of_data: DataOfCard, is_local: bool) -> str:
    given = [f"data.{key}={value}" for key, value in of_data.settings.items() if key not in _OF_TRAINING]
    given += ["data.root=FOLDER"] if is_local else []
    words = ["pipeline", "evaluate", f"zoo:{name}", "--data", of_data.source]
    return shlex.join([*words, *(word for setting in given for word in ("--set", setting))])


def _portable(command: str) -> str:
    """The command with PATH in the place of whatever lies on this machine."""
    words = []
    for word in shlex.split(command):
        key, equals, value = word.partition("=")
        words.append(f"{key}=PATH" if equals and value.startswith(("/", "~", "..")) else word)
    return shlex.join(words)


def _file(folder: Path, facts: Mapping[str, Any], artifact: str) -> bytes:
    """A file of the run, as run.json knows it."""
    steps: Sequence[Mapping[str, Any]] = facts["steps"]
    for step in steps:
        if artifact in step["outputs"]:
            place = step["outputs"][artifact]
            path = folder / step["folder"] / place
            try:
                content = path.read_bytes()
            except OSError as error:
                raise StageError(f"{path}: cannot be read ({error.strerror}); run the experiment again") from error
            if hashlib.sha256(content).hexdigest() != step["files"].get(place):
                raise StageError(f"{path}: sha256 differs from run.json, it was changed; run the experiment again")
            return content
    raise ConfigError(f"{folder}: has no {artifact}, needed a run of an experiment that trains a network")


def _check_size(zoo: Path, name: str, size: int) -> None:
    others = sum(model.stat().st_size for model in zoo.glob(f"*/{MODEL}") if model.parent.name != name)
    limits = (("it has", size, MODEL_LIMIT_BYTES), ("the zoo would have", others + size, ZOO_LIMIT_BYTES))
    for what, found, limit in limits:
        if found > limit:
            raise StageError(f"zoo:{name}: {what} {found:,} B, needed at most {limit:,}: it lies in git")
