"""The cache: served when nothing changed, rebuilt when any ingredient did, never trusted when damaged."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

ALL = ["grow", "mill", "bake-stove", "bake-kiln", "sell"]


def test_a_second_run_is_served_from_the_cache(toy):
    toy.run("run", "bread")
    assert sorted(toy.executed()) == sorted(ALL)
    assert set(toy.statuses().values()) == {"cached"}
    assert toy.executed() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "reruns", "reason"),
    [
        ("toy_mill.py", "* 31", "* 37", ["mill", "bake-stove", "bake-kiln", "sell"], "code.toy_mill: "),
        ("toy_helper.py", "wheat", "rye", ["grow", "mill"], "code.toy_helper: "),
        (
            "pipeline.yaml",
            "rounds: 4",
            "rounds: 3",
            ["mill", "bake-stove", "bake-kiln", "sell"],
            "config.rounds: 4 -> 3",
        ),
        ("pipeline.yaml", "grains: 6", "grains: 7", ["grow", *ALL[1:]], "config.grains: 6 -> 7"),
    ],
)
def test_each_ingredient_makes_its_step_run_and_undoing_it_does_not(toy, file, old, new, reruns, reason):
    toy.run("run", "bread")
    toy.executed()
    toy.edit(file, old, new)
    step = reruns[0]
    assert reason in toy.run("why", "bread", step).stdout
    toy.run("run", "bread")
    assert sorted(toy.executed()) == sorted(reruns)
    assert reason in toy.run("why", "bread", step).stdout
    toy.edit(file, new, old)
    assert set(toy.statuses().values()) == {"cached"}
    assert toy.executed() == []


BAG = "    bag: Bytes = 1000\n"
NAMES = "    @property\n    def source_modules(self):\n        return ('toy_recipe',)\n"
POINTS = "    def outside(self):\n        return {'seeds': Path('seeds.txt').read_text()}\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("toy_recipe.py", BAG, BAG + NAMES, "code.toy_recipe: "),
        ("recipe.txt", '@stage("grow",', '@stage("grow", sources=("recipe.txt",),', "file.recipe.txt: "),
        ("seeds.txt", BAG, BAG + POINTS, "outside.grow.seeds: PACE = 0 -> PACE = 1"),
    ],
    ids=["a module that the configuration names", "a declared source", "what the configuration points at"],
)
def test_what_a_step_names_beside_its_code_is_an_ingredient(toy, file, old, new, reason):
    (toy.root / file).write_text("PACE = 0")
    toy.edit("toy_grow.py", old, new)
    toy.run("run", "bread", "--only", "grow")
    toy.executed()
    (toy.root / file).write_text("PACE = 1")
    assert reason in toy.run("why", "bread", "grow").stdout
    toy.run("run", "bread", "--only", "grow")
    assert toy.executed() == ["grow"]


def test_a_declared_program_version_is_an_ingredient(toy):
    program = toy.root / "bin" / "toy-mill-program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho toy 1.0\n")
    program.chmod(0o755)
    toy.environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    toy.edit("toy_mill.py", '@stage("mill")', '@stage("mill", programs=("toy-mill-program",))')
    toy.run("run", "bread")
    toy.executed()
    program.write_text("#!/bin/sh\necho toy 2.0\n")
    assert "version.toy-mill-program: toy 1.0 -> toy 2.0" in toy.run("why", "bread", "mill").stdout
    toy.run("run", "bread")
    assert toy.executed() == ["mill"]  # it yields the same bytes, so nothing after it runs


def test_a_rerun_with_the_same_bytes_stops_there(toy):
    toy.run("run", "bread")
    toy.executed()
    toy.edit("toy_grow.py", '(out_dir / "corn").mkdir()', "(out_dir / 'corn').mkdir()  # the same corn")
    toy.run("run", "bread")
    assert toy.executed() == ["grow"]


def test_an_artifact_nobody_reads_does_not_rerun_anything(toy):
    toy.run("run", "bread")
    toy.executed()
    toy.run("run", "bread", "--set", "grow.bag=2KB")
    assert toy.executed() == ["grow"]  # only notes.txt changed


def _entry_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / ".pipeline" / "entries").rglob("*") if path.is_file())


def test_a_bit_flipped_in_any_cached_file_is_noticed_and_mended(toy):
    toy.run("run", "bread")
    before = toy.artifacts()
    files = _entry_files(toy.root)
    assert len(files) == 6 + 2 + 2 + 4 + 3
    rng = random.Random(7)
    folder = toy.root / ".pipeline" / "entries"
    entries = [[file for file in files if file.is_relative_to(entry)] for entry in sorted(folder.glob("*/*"))]
    for damaged in itertools.zip_longest(*entries):  # one file of each entry that has so many
        toy.executed()
        steps = []
        for file in filter(None, damaged):
            data = bytearray(file.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.chmod(0o644)
            file.write_bytes(data)
            steps.append(file.relative_to(folder).parts[0])
        said = re.findall(
            r"cache: (\w+)/\w+: .*(?:sha256|version).*; the entry is discarded and the step runs again",
            toy.run("run", "bread").stderr,
        )
        assert sorted(said) == sorted(name.split("-")[0] for name in toy.executed()) == sorted(steps)
        assert toy.artifacts() == before


@pytest.mark.parametrize("harm", ["missing", "truncated", "stray"])
def test_a_missing_truncated_or_stray_file_is_noticed(toy, harm):
    toy.run("run", "bread")
    toy.executed()
    flour = next(path for path in _entry_files(toy.root) if path.name == "flour.txt")
    flour.chmod(0o644)
    if harm == "missing":
        flour.unlink()
    elif harm == "truncated":
        flour.write_bytes(flour.read_bytes()[:-1])
    else:
        (flour.parent / "extra.txt").write_text("not mine")
    assert "the entry is discarded" in toy.run("run", "bread").stderr
    assert toy.executed() == ["mill"]


def test_two_runs_at_once_do_the_work_once(toy):
    slow = ["--set", "mill.pause_s=0.3"]
    both = [
        subprocess.Popen(
            toy.command("run", "bread", *slow), cwd=toy.root, env=toy.env(), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    notes = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], notes
    assert sorted(toy.executed()) == sorted(ALL)
    assert any("another run is working on the same" in note for note in notes)


def test_gc_removes_the_longest_unused_entries_first(toy):
    toy.run("run", "bread")
    entries = sorted((toy.root / ".pipeline" / "entries").glob("*/*"))
    for age_s, entry in enumerate(entries):
        os.utime(entry, (1e9 + age_s, 1e9 + age_s))
    keep = sum(file.stat().st_size for file in entries[-1].rglob("*") if file.is_file())
    said = toy.run("gc", "--max-age", "100000d", "--max-size", f"{keep}B").stdout
    assert said.startswith("removed 0 dropped runs and 0 entries") and "pipeline runs --drop ID" in said
    toy.run("runs", "--drop", "latest")
    said = toy.run("gc", "--max-age", "100000d", "--max-size", f"{keep}B").stdout
    assert said.startswith(f"removed 1 dropped runs and {len(entries) - 1} entries")
    assert sorted((toy.root / ".pipeline" / "entries").glob("*/*")) == [entries[-1]]


def test_gc_by_age_keeps_what_was_used_lately(toy):
    toy.run("run", "bread")
    old = next((toy.root / ".pipeline" / "entries" / "mill").iterdir())
    os.utime(old, (1e9, 1e9))
    toy.run("runs", "--drop", "latest")
    assert toy.run("gc", "--max-age", "1d").stdout.startswith("removed 1 dropped runs and 1 entries")
    assert not old.exists()
    toy.executed()
    toy.run("run", "bread")
    assert toy.executed() == ["mill"]


def test_gc_refuses_while_a_run_goes_on(toy):
    with toy.started("run", "bread", "--set", "mill.pause_s=0.5", until="mill: running") as run:
        refused = toy.run("gc", check=1)
        assert "a run is using the cache" in refused.stderr
    assert run.returncode == 0


def test_clean_removes_everything(toy):
    toy.run("run", "bread")
    toy.executed()
    assert toy.run("clean", "--yes").stdout.startswith("removed ")
    assert not (toy.root / "runs").exists()
    toy.run("run", "bread")
    assert sorted(toy.executed()) == sorted(ALL)


def test_the_key_of_a_step_is_pinned():
    """A change of this digest throws away every user's cache: make it on purpose."""
    from pipeline.digest import value_digest

    ingredients = {"step": "grow", "config.grains": 5, "version.python": "3.11.7", "code.toy_grow": "ab" * 32}
    assert value_digest(ingredients) == "94f7e91bb26e7a0f0f028ec9847b0a4c316e2d23e1a918717e95896460d12d2a"
