"""Publishing a run, the cards, `zoo:NAME`, and everything that is refused by a sha256."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import data
from pipeline.api.networks import compile, evaluate, inspect, optimize
from pipeline.errors import ConfigError, PipelineError, StageError
from stages.graph.tflite.task import task_note, task_of
from stages.graph.tflite.writer import write_tflite
from stages.tools.zoo.cards import MODEL_LIMIT_BYTES, ZOO_LIMIT_BYTES, networks, read_card, verified_model, zoo_model
from stages.tools.zoo.page import PAGE, page_text, references, zoo
from stages.tools.zoo.publication import publish
from tests.stages.tools.zoo.test_evaluation import PICTURES, RECORD, picture_network

ROOT = Path(__file__).resolve().parents[4]
CONFIG = {
    "data": {
        "source": "builtin_images", "root": None, "download_dir": "/home/me/downloads", "augment": None, "seed": 1,
        "voices": 58, "prosodies": 5, "copies": 3, "image_px": 12, "image_classes": 3, "per_class": 200,
    },
    "budget": {"peak_bytes": 20_000, "size_bytes": None, "macs": 500_000, "runtime": "classic", "required": True},
}  # fmt: skip
ROW = {
    "experiment": "mine", "board": "nucleo_f767zi", "source": "virtual", "n": "30", "accuracy_int8": "0.3",
    "size_bytes": "500", "peak_bytes": "900", "arena_bytes": "912", "macs": "12345", "flash_bytes": "40000",
    "ram_bytes": "9000", "clock_hz": "216000000", "instructions": "70000", "latency_ms_modelled": "0.25",
    "latency_ms": "", "energy_mj_modelled": "0.2", "energy_mj": "", "fits": "true",
}  # fmt: skip


def model_bytes() -> bytes:
    return write_tflite(picture_network(), "test", notes=task_note(task_of(RECORD)))


def made_run(folder: Path, model: bytes, **changes: Any) -> dict[str, Any]:
    """A run as its folder and run.json would be."""
    accuracy = evaluate_by_hand(folder, model)
    row = {**ROW, "model_sha256": hashlib.sha256(model).hexdigest()}
    summary = io.StringIO()
    writer = csv.DictWriter(summary, list(row))
    writer.writeheader()
    writer.writerow(row)
    dataset = {**RECORD, "source": "builtin_images", "examples_sha256": "ab" * 32}
    metrics = {"float": {"validation": 0.5, "test": 0.4}, "fake_quant": {"validation": 0.5, "test": 0.4}}
    files = {
        ("prepare", "dataset", "dataset.json"): json.dumps(dataset).encode(),
        ("qat", "qat_metrics", "metrics.json"): json.dumps(metrics).encode(),
        ("export", "model", "model.tflite"): model,
        ("export", "accuracy", "accuracy.json"): json.dumps(accuracy).encode(),
        ("report", "summary", "summary.csv"): summary.getvalue().encode(),
    }
    steps: dict[str, dict[str, Any]] = {}
    for (step, artifact, name), content in files.items():
        (folder / step).mkdir(parents=True, exist_ok=True)
        (folder / step / name).write_bytes(content)
        told = steps.setdefault(step, {"step": step, "board": None, "folder": step, "outputs": {}, "files": {}})
        told["outputs"][artifact] = name
        told["files"][name] = hashlib.sha256(content).hexdigest()
    facts = {
        "id": "20261118-000000-0000", "name": "mine-quick", "state": "done", "whole": True, "experiment": "mine",
        "quick": True, "command": "pipeline run mine --quick --set data.root=/home/me/pictures --set prune.rate=3",
        "start": "2026-11-18T00:00:00+00:00", "git": {"commit": "c" * 40, "dirty": False}, "seed": {"prune": 4},
        "config": CONFIG, "config_digest": "cd" * 32, "versions": {"torch": "2.13.0"}, "steps": list(steps.values()),
    }  # fmt: skip
    return {**facts, **changes}


def evaluate_by_hand(folder: Path, model: bytes) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scratch.tflite").write_bytes(model)
    found = evaluate(folder / "scratch.tflite", "builtin_images", set=PICTURES, progress=False)
    return {"n": found.n, "accuracy_int8": found.accuracy, "accuracy_float": 0.5}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one network in its zoo."""
    project = tmp_path_factory.mktemp("project")
    facts = made_run(project / "run", model_bytes())
    publish(project / "run", facts, None, project)
    return project


@pytest.fixture
def copy(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(published / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_card_tells_where_the_network_comes_from_and_nothing_of_this_machine(published: Path) -> None:
    folder = published / "data" / "zoo" / "mine-quick"
    card, model = verified_model(folder)
    assert model.read_bytes() == model_bytes()
    assert card.command == "pipeline run mine --quick --set data.root=PATH --set prune.rate=3"
    assert "/home/me" not in (folder / "card.yaml").read_text()
    assert card.budget == {"peak_bytes": 20_000, "macs": 500_000}
    assert card.data.settings == {"image_px": 12, "image_classes": 3, "per_class": 200}
    assert (card.boards[0].latency_ms, card.boards[0].latency_ms_modelled) == (None, 0.25)
    assert card.accuracy.int8_standard_error == pytest.approx(
        (card.accuracy.int8 * (1 - card.accuracy.int8) / card.accuracy.n) ** 0.5
    )
    assert "carry no licence" in card.data.licence


def test_a_run_outside_a_repository_is_published_without_a_commit(tmp_path: Path) -> None:
    publish(tmp_path / "run", made_run(tmp_path / "run", model_bytes(), git=None), "other", tmp_path)
    assert read_card(tmp_path / "data" / "zoo" / "other").commit is None


def test_how_training_clips_were_mixed_stands_on_the_card_and_not_in_its_command(tmp_path: Path) -> None:
    mixing = {"shift_s": 0.2, "tempo": None, "noise_share": 0.9, "snr_db": [0.0, 25.0]}
    config = {**CONFIG, "data": {**CONFIG["data"], "mixing": mixing}}
    publish(tmp_path / "run", made_run(tmp_path / "run", model_bytes(), config=config), "mixed", tmp_path)
    card = read_card(tmp_path / "data" / "zoo" / "mixed")
    assert card.data.settings["mixing"] == mixing
    assert "mixing" not in card.evaluate


def test_a_note_stands_on_the_card_and_on_the_page_as_it_was_written(tmp_path: Path) -> None:
    facts = made_run(tmp_path / "run", model_bytes())
    publish(tmp_path / "run", facts, "noted", tmp_path, "epochs 1 to 3\n<b> at another commit")
    assert read_card(tmp_path / "data" / "zoo" / "noted").note == "epochs 1 to 3\n<b> at another commit"
    page = (tmp_path / "data" / "zoo" / "README.md").read_text()
    assert "; epochs 1 to 3\\n\\<b\\> at another commit" in page.replace("\\\\n", "\\n")


def test_the_command_on_the_card_gives_its_accuracy_to_the_example(copy: Path) -> None:
    card = read_card(copy / "data" / "zoo" / "mine-quick")
    words = card.evaluate.split()
    assert words[:5] == ["pipeline", "evaluate", "zoo:mine-quick", "--data", "builtin_images"]
    found = evaluate(words[2], words[4], set=[word for word in words if word.startswith("data.")], progress=False)
    assert (found.accuracy, found.n, found.model_sha256) == (card.accuracy.int8, card.accuracy.n, card.sha256)


def test_a_published_name_is_taken_wherever_a_file_is(copy: Path) -> None:
    assert inspect("zoo:mine-quick").macs > 0
    assert optimize(Path("zoo:mine-quick"), copy / "out.tflite").arena_bytes > 0
    assert compile("zoo:mine-quick", copy / "made").ops > 0


def test_the_list_shows_it_and_the_page_is_made_from_the_cards(copy: Path) -> None:
    answer = zoo(copy, True)
    card = read_card(copy / "data" / "zoo" / "mine-quick")
    assert f"{100 * card.accuracy.int8:.2f} ±" in answer.text and "0.25m" in answer.text
    page = (copy / "data" / "zoo" / PAGE).read_text()
    assert "## Other data" in page and re.search(r"mine-quick \| .*0\.25m", page)
    assert page == page_text([card], references())


def spoil(folder: Path, how: str) -> Path:
    model, card = folder / "model.tflite", folder / "card.yaml"
    content = model.read_bytes()
    if how == "damaged":
        model.write_bytes(content[:700] + bytes([content[700] ^ 1]) + content[701:])
    elif how == "truncated":
        model.write_bytes(content[:-1])
    elif how == "missing":
        model.unlink()
    elif how == "renamed":
        return folder.rename(folder.with_name("kws_dscnn_s"))
    elif how == "improved":
        card.write_text(re.sub(r"int8: 0\.\d+", "int8: 0.99", card.read_text(), count=1))
    elif how == "cut":
        card.write_text(card.read_text()[:200])
    elif how == "nonsense":
        card.write_text("[1, 2")
    return folder


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("damaged", "damaged, cut off or another network"),
        ("truncated", "damaged, cut off or another network"),
        ("missing", "model.tflite cannot be read"),
        ("renamed", "belongs to zoo:mine-quick, needed that of kws_dscnn_s"),
        ("improved", "was changed since it was published"),
        ("cut", "cannot be read"),
        ("nonsense", "cannot be read"),
    ],
)
def test_what_is_not_as_it_was_published_is_refused_in_a_sentence(copy: Path, how: str, sentence: str) -> None:
    folder = spoil(copy / "data" / "zoo" / "mine-quick", how)
    with pytest.raises(StageError, match=sentence):
        inspect(f"zoo:{folder.name}")
    assert any(sentence in line for line in zoo(copy, False).record["refused"])


@pytest.mark.parametrize("name", ["nobody", "../mine-quick", ".", "", "Mine"])
def test_an_unknown_name_is_a_mistake_of_usage(copy: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="the list is: pipeline zoo"):
        zoo_model(name, copy)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "killed", "whole": False}, "mine-quick/20261118-000000-0000: is killed, needed a whole run"),
        ({"whole": False}, "done with some steps only"),
        ({"steps": []}, "has no model"),
    ],
)
def test_a_run_that_is_not_whole_is_not_published(tmp_path: Path, changes: dict, sentence: str) -> None:
    facts = made_run(tmp_path / "run", model_bytes(), **changes)
    with pytest.raises(ConfigError, match=sentence):
        publish(tmp_path / "run", facts, None, tmp_path)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("file", ["export/model.tflite", "export/accuracy.json", "report/summary.csv"])
def test_a_file_that_was_changed_since_the_run_is_not_published(tmp_path: Path, file: str) -> None:
    facts = made_run(tmp_path / "run", model_bytes())
    path = tmp_path / "run" / file
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(StageError, match="sha256 differs from run.json"):
        publish(tmp_path / "run", facts, None, tmp_path)
    assert not (tmp_path / "data").exists()


def test_a_network_without_a_task_or_a_bad_name_is_not_published(tmp_path: Path) -> None:
    facts = made_run(tmp_path / "run", model_bytes())
    with pytest.raises(ConfigError, match="--name ../up: needed small letters"):
        publish(tmp_path / "run", facts, "../up", tmp_path)
    plain = write_tflite(picture_network(), "of an earlier version")
    (tmp_path / "run" / "export" / "model.tflite").write_bytes(plain)
    next(step for step in facts["steps"] if step["step"] == "export")["files"]["model.tflite"] = hashlib.sha256(
        plain
    ).hexdigest()
    with pytest.raises(StageError, match="says nothing of its task"):
        publish(tmp_path / "run", facts, None, tmp_path)


def test_the_zoo_of_the_package_is_whole_small_and_its_page_is_that_of_its_cards() -> None:
    place = Path(data.__file__).parent / "zoo"
    cards = []
    for folder in networks(ROOT):
        card, model = verified_model(folder)
        assert model.stat().st_size <= MODEL_LIMIT_BYTES, folder.name
        assert not card.quick and card.fits, folder.name
        cards.append(card)
    assert sum(card.model_bytes for card in cards) <= ZOO_LIMIT_BYTES
    assert (place / PAGE).read_text() == page_text(cards, references())
    assert (ROOT / ".gitattributes").read_text() == "data/zoo/*/model.tflite binary\n"


def test_every_figure_of_others_has_a_source() -> None:
    rows = [row for task in references() for row in task["others"]]
    assert len(rows) > 20 and all(row["source"] and row["network"] for row in rows)
    assert {key for row in rows for key in row} <= {
        "network", "accuracy", "parameters", "size", "peak", "MACs", "measured", "source",
    }  # fmt: skip
    assert yaml.safe_load((Path(data.__file__).parent / "zoo" / "references.yaml").read_text())["tasks"]


def test_a_network_that_is_too_large_for_a_repository_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = made_run(tmp_path / "run", model_bytes())
    other = tmp_path / "data" / "zoo" / "other"
    other.mkdir(parents=True)
    with (other / "model.tflite").open("wb") as file:
        file.truncate(ZOO_LIMIT_BYTES)
    with pytest.raises(PipelineError, match="the zoo would have .* needed at most 4,000,000: it lies in git"):
        publish(tmp_path / "run", facts, None, tmp_path)
