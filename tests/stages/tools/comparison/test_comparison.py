"""compare finds what was planted, calls equal runs equal, and says which is which."""

from __future__ import annotations

import csv
import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ConfigError
from stages.tools.comparison.comparison import compare
from stages.tools.comparison.findings import ALPHA_MEASURED

N_TEST, CLASSES = 720, 12
LAYERS_MS = {"stem": 2.0, "block_1": 9.0, "block_2": 8.0, "pool": 0.5, "classifier": 0.5}


def make_run(
    folder: Path,
    *,
    source: str = "hardware",
    noise_seed: int = 0,
    slower: dict[str, float] | None = None,
    wrong: frozenset[int] = frozenset(range(36)),
    config: dict[str, Any] | None = None,
    names: dict[str, str] | None = None,
    test_inputs: str = "e" * 64,
) -> Path:
    """The folder of a run: 30 measurements with 0.2 % of noise on a board, exact figures on a twin."""
    rng = random.Random(noise_seed)
    taken = {name: ms * (slower or {}).get(name, 1.0) for name, ms in LAYERS_MS.items()}
    total, noise = sum(taken.values()), 0.002 if source == "hardware" else 0.0
    samples = [total * rng.gauss(1, noise) for _ in range(30)]
    energies = [0.9 * total * rng.gauss(1, noise) for _ in range(30)]
    row: dict[str, Any] = {"experiment": "kws", "board": "stove", "source": source, "n": 30, "size_bytes": 59358}
    row |= {"accuracy_int8": 1 - len(wrong) / N_TEST, "accuracy_n": N_TEST, "peak_bytes": 51660, "macs": 7969946}
    if source == "hardware":
        for column, values in (("latency_ms", samples), ("energy_mj", energies)):
            row |= {column: statistics.fmean(values), f"{column}_2sigma": 2 * statistics.stdev(values)}
    else:
        row |= {"latency_ms_modelled": total, "energy_mj_modelled": 0.9 * total}
    (folder / "export").mkdir(parents=True)
    (folder / "measure-stove").mkdir()
    column = "latency_ms" if source == "hardware" else "latency_ms_modelled"
    with (folder / "measure-stove" / "layers.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["index", "name", column])
        for index, (name, ms) in enumerate(taken.items()):
            # Layers share the noise of the whole; none can have more.
            writer.writerow([index, (names or {}).get(name, name), ms + total * noise * rng.gauss(0, 1) / 2.3])
    with (folder / "export" / "predictions.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["index", "label", "int8", "float"])
        for index in range(N_TEST):
            label = index % CLASSES
            writer.writerow([index, label, (label + (index in wrong)) % CLASSES, label])
    record = {
        **{"name": "kws-quick", "state": "done", "git": None, "versions": {"torch": "2.13.0"}, "rows": [row]},
        **{"config": {"qat": {"epochs": 2}, **(config or {})}, "boards": [{"board": "stove", "source": source}]},
        "steps": [
            {"board": None, "folder": "prepare", "outputs": {}, "files": {"features/test_x.npy": test_inputs}},
            {"board": None, "folder": "export", "outputs": {"predictions": "predictions.csv"}, "files": {}},
            {"board": "stove", "folder": "measure-stove", "outputs": {"device_layers": "layers.csv"}, "files": {}},
        ],
    }
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def against(base: Path, other: Path, **options: Any) -> Any:
    return compare([("A", base), ("B", other)], **options)


def certain(answer: Any) -> dict[str, str]:
    (each,) = answer.record["compared"]
    return {
        f"{one['where']} {one['column']}".strip(): one["verdict"]
        for one in each["findings"]
        if one["verdict"] in ("better", "worse", "missing")
    }


def test_twenty_pairs_of_equal_runs_with_other_noise_are_equal(tmp_path: Path) -> None:
    for pair in range(20):
        runs = [make_run(tmp_path / f"{pair}_{side}", noise_seed=2 * pair + side) for side in (0, 1)]
        answer = against(*runs)
        assert certain(answer) == {}, pair
        assert "equal: nothing differs by more than noise" in answer.text
        assert "noise (p " in answer.text
    assert ALPHA_MEASURED * 20 <= 0.02, "so that this is no matter of luck"


@pytest.mark.parametrize("source", ["hardware", "virtual"])
def test_a_planted_slowdown_of_one_layer_is_found(tmp_path: Path, source: str) -> None:
    base = make_run(tmp_path / "a", source=source, noise_seed=1)
    slow = make_run(tmp_path / "b", source=source, noise_seed=2, slower={"block_1": 1.05})
    found = certain(against(base, slow))
    column = "latency_ms" if source == "hardware" else "latency_ms_modelled"
    energy = column.replace("latency_ms", "energy_mj")
    place = f"stove ({source})"
    assert found == {f"{place} {column}": "worse", f"{place} {energy}": "worse", f"{place}: block_1 {column}": "worse"}
    assert certain(against(slow, base))[f"{place}: block_1 {column}"] == "better"


def test_a_planted_drop_of_three_points_is_found_on_the_same_examples(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a")
    drop = make_run(tmp_path / "b", wrong=frozenset(range(36 + 22)))  # 22 of 720: 3.06 points
    answer = against(base, drop)
    assert certain(answer) == {"accuracy_int8": "worse"}
    assert "-3.06 points" in answer.text and "McNemar, exact: 0 of 720 examples gained, 22 lost" in answer.text
    retrained = make_run(tmp_path / "c", wrong=frozenset([*range(18, 36), *range(100, 140)]))  # 18 gained, 40 lost
    assert certain(against(base, retrained)) == {"accuracy_int8": "worse"}
    chance = make_run(tmp_path / "d", wrong=frozenset([*range(18, 36), *range(100, 122)]))  # 18 gained, 22 lost
    assert certain(against(base, chance)) == {}


def test_other_examples_are_compared_as_two_shares(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a")
    other = make_run(tmp_path / "b", wrong=frozenset(range(58)), test_inputs="f" * 64)
    answer = against(base, other)
    assert "two proportions, n 720 and 720" in answer.text and certain(answer) == {"accuracy_int8": "worse"}
    low, high = answer.record["compared"][0]["accuracy_intervals"]["other"]
    assert low < 1 - 58 / 720 < high


def test_the_configuration_that_differs_is_shown(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a")
    other = make_run(tmp_path / "b", config={"qat": {"epochs": 4}, "prune": {"seed": 1}})
    answer = against(base, other)
    assert answer.record["compared"][0]["configuration"] == {"qat.epochs": [2, 4], "prune.seed": [None, 1]}
    assert [line.split() for line in answer.text.splitlines() if "epochs" in line] == [["qat.epochs", "2", "4"]]


@pytest.mark.parametrize(
    ("limit", "fails"),
    [
        ("latency_ms > 2%", True),
        ("latency_ms>3%", False),
        ("latency_ms > 0.4", True),
        ("latency_ms > 0.5", False),
        ("layers.latency_ms >= 4.5 %", True),
        ("layers.latency_ms > 7%", False),
        ("energy_mj > 2%", True),
        ("size_bytes > 0%", False),
        ("accuracy_int8 < -0.01", False),
    ],
)
def test_a_limit_fails_only_beyond_it(tmp_path: Path, limit: str, fails: bool) -> None:
    base = make_run(tmp_path / "a", noise_seed=1)
    slow = make_run(tmp_path / "b", noise_seed=2, slower={"block_1": 1.05})
    assert against(base, slow, fail_on=[limit]).record["failed"] == ([limit] if fails else [])


def test_noise_breaks_no_limit_and_a_modelled_time_stands_in_for_a_measured_one(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{seed}", noise_seed=seed) for seed in (1, 2)]
    assert against(*runs, fail_on=["latency_ms > 0%", "latency_ms < 0%"]).record["failed"] == []
    twins = [make_run(tmp_path / f"twin{factor}", source="virtual", slower={"stem": factor}) for factor in (1.0, 1.3)]
    assert against(*twins, fail_on=["latency_ms > 2%"]).record["failed"] == ["latency_ms > 2%"]


@pytest.mark.parametrize("limit", ["latency", "latency_ms = 2%", "> 2%", "latency_ms > 1.2.3%", "no_such > 2%", ""])
def test_a_limit_that_means_nothing_is_refused(tmp_path: Path, limit: str) -> None:
    runs = [make_run(tmp_path / name) for name in "ab"]
    with pytest.raises(ConfigError, match="--fail-on "):
        against(*runs, fail_on=[limit])


def test_csv_files_are_compared_by_their_last_rows(tmp_path: Path) -> None:
    paths = []
    for name, ms in (("a.csv", (5.0, 1.0)), ("b.csv", (9.0, 1.5))):
        paths.append(tmp_path / name)
        rows = [f"stove,virtual,2026-0{at + 1}-01,{value},0.9,100" for at, value in enumerate(ms)]
        paths[-1].write_text("\n".join(["board,source,date,latency_ms_modelled,accuracy_int8,accuracy_n", *rows]))
    answer = against(*paths)
    assert certain(answer) == {"stove (virtual) latency_ms_modelled": "worse"}
    assert "+50.00 %" in answer.text
    (tmp_path / "c.csv").write_text("x\n1\n")
    with pytest.raises(ConfigError, match="has no rows with columns board and source"):
        against(paths[0], tmp_path / "c.csv")
    (tmp_path / "d.csv").write_text("board,source\nkiln,hardware\n")
    with pytest.raises(ConfigError, match="nothing to compare with A; they share no board and source"):
        against(paths[0], tmp_path / "d.csv")


def test_hostile_names_are_text_in_terminal_and_markdown(tmp_path: Path) -> None:
    evil = "\x1b[31m|<img src=x>`*_\u202e"
    base = make_run(tmp_path / "a", source="virtual", names={"stem": evil})
    slow = make_run(tmp_path / "b", source="virtual", names={"stem": evil}, slower={"stem": 1.5}, config={evil: evil})
    text = against(base, slow).text
    assert text.replace("\n", "").isprintable() and "\\x1b[31m|<img" in text
    comment = against(base, slow, markdown=True).text
    assert comment.replace("\n", "").isprintable() and "<img" not in comment.replace("\\<img", "")
    rows = [line for line in comment.splitlines() if line.startswith("|")]
    counts = {line.replace("\\|", "").count("|") for line in rows}
    assert counts <= {7, 4} and rows, "no name makes a column of its own"


def test_three_runs_are_each_held_against_the_first(tmp_path: Path) -> None:
    slower = {"a": 1.0, "b": 2.0, "c": 3.0}
    subjects = [(name, make_run(tmp_path / name, slower={"block_1": at})) for name, at in slower.items()]
    answer = compare(subjects)
    assert [each["name"] for each in answer.record["compared"]] == ["b", "c"]
    assert answer.text.count(" against a: worse: ") == 2
    with pytest.raises(ConfigError, match="needed two or more"):
        compare(subjects[:1])


def test_the_page_holds_every_figure_and_hostile_names_are_text(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    base = make_run(tmp_path / "a", noise_seed=1, names={"block_1": evil})
    slow = make_run(tmp_path / "b", noise_seed=2, slower={"block_1": 1.05}, names={"block_1": evil})
    page = tmp_path / "c.html"
    answer = compare([("A", base), (evil, slow)], page=page)
    text = page.read_text()
    assert "<img src=x" not in text and "&lt;img src=x" in text
    for one in answer.record["compared"][0]["findings"]:
        if one["column"] == "latency_ms" and one["verdict"] == "worse":
            assert f"{100 * one['change']:+.2f} %" in text and f"{100 * one['change']:+.2f} %" in answer.text
    with pytest.raises(ConfigError, match="--html .*cannot be written"):
        compare([("A", base), ("B", slow)], page=tmp_path / "nowhere" / "c.html")
