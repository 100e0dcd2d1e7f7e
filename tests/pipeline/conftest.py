"""A toy project in a temporary folder: three steps in plain Python, driven through the real command line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pipeline.cli.__main__ import main

TOY_STEPS = """
import json
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StageError
from pipeline.stage import Checkpoint, Config, PerBoard, Progress, Target, stage
from pipeline.units import Bytes
"""

CORN = (
    TOY_STEPS
    + """
import toy_helper

class GrowConfig(Config):
    grains: int = 5
    bag: Bytes = 1000

@dataclass(frozen=True)
class Grown:
    corn: Path
    notes: Path

@stage("grow", packages=("pydantic",))
def run(*, config: GrowConfig, out_dir: Path) -> Grown:
    (out_dir / "corn").mkdir()
    for grain in range(config.grains):
        (out_dir / "corn" / f"{grain}.txt").write_text(f"{toy_helper.GRAIN} {grain}")
    (out_dir / "notes.txt").write_text(str(config.bag))
    with open(Path(__file__).parent / "executed.log", "a") as log:
        log.write("grow ")
    return Grown(corn=out_dir / "corn", notes=out_dir / "notes.txt")
"""
)

MILL = (
    TOY_STEPS
    + '''
class MillConfig(Config):
    rounds: int = 4
    pause_s: float = 0.0
    fail: bool = False
    fill_disk: bool = False

@dataclass(frozen=True)
class Milled:
    flour: Path

@stage("mill")
def run(corn: Path, *, config: MillConfig, out_dir: Path, progress: Progress, checkpoint: Checkpoint) -> Milled:
    """Like a training: rounds that build on each other, with a checkpoint after each."""
    with open(Path(__file__).parent / "executed.log", "a") as log:
        log.write("mill ")
    saved = checkpoint.saved()
    state = json.loads(saved.read_text()) if saved else {"round": 0, "dust": 1}
    if saved:
        with open(Path(__file__).parent / "resumed.log", "a") as log:
            log.write(f"{state['round']} ")
    grains = sorted(file.read_text() for file in corn.iterdir())
    if config.fail:
        raise StageError("the millstone is cracked; needed a whole one")
    if config.fill_disk:
        (out_dir / "flour.txt").symlink_to("/dev/full")
        (out_dir / "flour.txt").write_text("x" * 100000)
    progress.start(config.rounds, "round")
    while state["round"] < config.rounds:
        time.sleep(config.pause_s)
        state = {"round": state["round"] + 1, "dust": (state["dust"] * 31 + len(grains)) % 1000003}
        checkpoint.save(lambda path: path.write_text(json.dumps(state)))
        progress.advance(1, f"dust {state['dust']}")
    (out_dir / "flour.txt").write_text(f"{len(grains)} {state['dust'] if config.rounds else 0}")
    return Milled(flour=out_dir / "flour.txt")
'''
)

BAKE = (
    TOY_STEPS
    + """
class OvenConfig(Config):
    heat: int = 200

@dataclass(frozen=True)
class Baked:
    bread: Path

@stage("bake", touches_hardware=True)
def run(flour: Path, *, config: OvenConfig, target: Target, out_dir: Path) -> Baked:
    with open(Path(__file__).parent / "executed.log", "a") as log:
        log.write(f"bake-{target.board} ")
    (out_dir / "bread.txt").write_text(f"{flour.read_text()} {config.heat} {target.board} {target.source}")
    return Baked(bread=out_dir / "bread.txt")
"""
)

SELL = (
    TOY_STEPS
    + """
class SellConfig(Config):
    price: int = 3

@dataclass(frozen=True)
class Sold:
    table: Path
    rows: Path

@stage("sell")
def run(bread: PerBoard, *, config: SellConfig, experiment: str, out_dir: Path) -> Sold:
    with open(Path(__file__).parent / "executed.log", "a") as log:
        log.write("sell ")
    lines = [f"{board} {path.read_text()}" for board, path in bread.items()]
    (out_dir / "table.txt").write_text("\\n".join([experiment, *lines]) + "\\n")
    (out_dir / "rows.csv").write_text("board,price\\n" + "".join(f"{board},{config.price}\\n" for board in bread))
    return Sold(table=out_dir / "table.txt", rows=out_dir / "rows.csv")
"""
)

YAML = """
steps:
  grow: toy_grow
  mill: toy_mill
  bake: toy_bake
  sell: toy_sell
bench: toy_bench:attached
show: {table: table, rows: rows}
programs:
  no-such-mill: apt-get install no-such-mill
defaults:
  boards: [stove, kiln]
  mill:
    rounds: 4
experiments:
  bread:
    description: a loaf
    grow:
      grains: 6
    quick:
      mill: {rounds: 2}
quick:
  grow: {grains: 3}
"""


@dataclass
class ToyProject:
    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pipeline.cli", *arguments]

    def run(self, *arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """The command, in a fork of this process: its modules are imported already, which is half of its time."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                self._become(arguments, out.fileno(), err.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(arguments, status, out.read(), err.read())
        assert check is None or done.returncode == check, done.stderr + done.stdout
        return done

    def _become(self, arguments: tuple[str, ...], out: int, err: int) -> NoReturn:
        """The command line, from here to its exit code."""
        code = 70
        try:
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            for name in [name for name in sys.modules if name.startswith("toy_")]:
                del sys.modules[name]  # another test imported it here, from another project
            os.chdir(self.root)
            os.environ.update(self.env())
            sys.argv = ["pipeline", *arguments]
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:  # noqa: BLE001 - as the interpreter would
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    @contextlib.contextmanager
    def started(self, *arguments: str, until: str) -> Iterator[subprocess.Popen[str]]:
        """A run in the background that has said `until`; it has ended when the block is left."""
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.env(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stderr is not None
            assert any(until in line for line in process.stderr)
            yield process
            process.communicate(timeout=60)

    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **self.environment}

    def executed(self) -> list[str]:
        """Steps that were executed since this was last asked."""
        log = self.root / "executed.log"
        steps = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return steps

    def statuses(self, *arguments: str) -> dict[str, str]:
        done = json.loads(self.run("run", "bread", "--json", *arguments).stdout)
        return {
            step["step"] + (f"[{step['board']}]" if step["board"] else ""): step["status"] for step in done["steps"]
        }

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        (self.root / name).write_text(text.replace(old, new))

    def artifacts(self) -> dict[str, bytes]:
        """Every file of the newest whole run by its place, but for its record."""
        run = self.latest
        return {
            str(path.relative_to(run)): path.read_bytes()
            for path in sorted(run.rglob("*"))
            if path.is_file() and path.name != "run.json"
        }

    @property
    def latest(self) -> Path:
        """The newest whole run of bread."""
        return (self.root / "runs" / "bread" / "latest").resolve()


def make_toy(root: Path) -> ToyProject:
    files: dict[str, Any] = {
        "toy_grow.py": CORN,
        "toy_mill.py": MILL,
        "toy_bake.py": BAKE,
        "toy_sell.py": SELL,
        "toy_helper.py": "GRAIN = 'wheat'\n",
        "toy_bench.py": "def attached():\n    return ()\n",
        "pipeline.yaml": YAML,
    }
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(textwrap.dedent(text))
    return ToyProject(root)


@pytest.fixture
def toy(tmp_path: Path) -> ToyProject:
    return make_toy(tmp_path / "toy")
