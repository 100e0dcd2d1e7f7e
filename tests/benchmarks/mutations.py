"""Do the tests of a room notice a wrong operator in it?

    python -m tests.benchmarks.mutations --count 60 --seed 1 [--room stages/graph]... [--jobs 2] [--csv FILE]

Draws places at random, evenly over the lines of code outside of tests: a comparison, an arithmetic or logical operator,
a number, a constant, min and max. Changes one at a time in a copy of the tree and runs the tests of the room, those of
the module's own folder first. A mutation is caught when a test fails or does not end. Each survivor is printed with its
line: either a test is missing or the change makes no difference, which a person has to say.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("pipeline", "stages", "boards", "hil", "data")
_LIMIT_S = 900
_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutation:
    """One change: `start` to `end` of a file's bytes become `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str


@dataclass(frozen=True)
class Outcome:
    """What the tests said."""

    file: str
    line: int
    change: str
    caught: bool
    by: str  # the first test that failed
    seconds: float
    code: str


def mutations(file: Path) -> Iterator[Mutation]:
    """Every change of a module that can be made."""
    content = file.read_bytes()
    starts = [0]
    for row in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    name = file.relative_to(ROOT).as_posix()

    def place(row: int | None, column: int | None) -> int:
        assert row is not None and column is not None
        return starts[row - 1] + column

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutation]:
        if type(operator) not in _OPERATORS:
            return
        old, new = _OPERATORS[type(operator)]
        first, last = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
        if content[first:last].count(old.encode()) == 1:
            at = first + content[first:last].index(old.encode())
            yield Mutation(name, content[:at].count(b"\n") + 1, at, at + len(old), old, new)

    def swap(node: ast.expr, new: str) -> Iterator[Mutation]:
        at, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        yield Mutation(name, node.lineno, at, end, content[at:end].decode(), new)

    tree = ast.parse(content)
    skipped = {id(part) for node in ast.walk(tree) for part in _not_code(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            first = place(node.values[0].end_lineno, node.values[0].end_col_offset)
            last = place(node.values[1].lineno, node.values[1].col_offset)
            if content[first:last].split().count(old.encode()) == 1:
                at = first + content[first:last].index(old.encode())
                yield Mutation(name, content[:at].count(b"\n") + 1, at, at + len(old), old, new)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from swap(node, f"bool({ast.unparse(node.operand)})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield from swap(node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield from swap(node, str(node.value + 1))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            yield from swap(node.func, _CALLS[node.func.id])


def _not_code(node: ast.AST) -> Iterator[ast.AST]:
    """What looks like arithmetic and is none: annotations, what is put into text, decorators, `strict` of zip."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.AnnAssign):
        parts = [node.annotation]
    elif isinstance(node, ast.FunctionDef):
        parts = [node.returns, *(argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs))]
        parts += node.decorator_list
    elif isinstance(node, ast.ClassDef):
        parts = [*node.decorator_list]
    elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)):
        parts = [node]
    elif isinstance(node, ast.Call):
        parts = [word.value for word in node.keywords if word.arg == "strict"]
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def drawn(rooms: Sequence[str], count: int, seed: int) -> list[Mutation]:
    """At random, without two of the same line."""
    files = sorted(file for room in rooms for file in (ROOT / room).rglob("*.py"))
    every = [mutation for file in files for mutation in mutations(file)]
    random.Random(seed).shuffle(every)
    by_line: dict[tuple[str, int], Mutation] = {}
    for mutation in every:
        by_line.setdefault((mutation.file, mutation.line), mutation)
    return list(by_line.values())[:count]


def tests_of(file: str) -> list[str]:
    """Folders of tests to run, in turn: the mirror of the module's own folder, then that of its room."""
    folder = Path(file).parent
    own = next(path for path in (folder, *folder.parents) if (ROOT / "tests" / path).is_dir())
    room = Path(*folder.parts[: 2 if folder.parts[0] == "stages" else 1])
    found = [own] if own == room or room not in own.parents else [own, room]
    return [f"tests/{path.as_posix()}" for path in found]


def outcome(mutation: Mutation, tree: Path) -> Outcome:
    """Make the change in the copy `tree`, run the tests, take it back."""
    file = tree / mutation.file
    content = file.read_bytes()
    start = time.monotonic()
    file.write_bytes(content[: mutation.start] + mutation.new.encode() + content[mutation.end :])
    try:
        by = next((found for folder in tests_of(mutation.file) if (found := _failure(folder, tree))), "")
    finally:
        file.write_bytes(content)
    line = content.decode().splitlines()[mutation.line - 1].strip()
    change = f"{mutation.old} -> {mutation.new}"
    return Outcome(mutation.file, mutation.line, change, bool(by), by, round(time.monotonic() - start, 1), line)


def _failure(folder: str, tree: Path) -> str:
    """The first test that fails; empty if none does."""
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", folder]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return "did not end"
    if done.returncode == 0:
        return ""
    failed = [row for row in done.stdout.splitlines() if row.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else "did not start"


def copied_tree(into: Path) -> Path:
    """What git tracks, as it is now."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    subprocess.run(["git", "init", "-q"], cwd=into, check=True)
    subprocess.run(["git", "add", "-A"], cwd=into, check=True)
    return into


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", help="a folder, e.g. stages/graph; default: all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    chosen = drawn(given.room or ROOMS, given.count, given.seed)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        trees: Queue[Path] = Queue()
        for number in range(given.jobs):
            trees.put(copied_tree(Path(scratch) / str(number)))

        def judged(mutation: Mutation) -> Outcome:
            tree = trees.get()
            try:
                return outcome(mutation, tree)
            finally:
                trees.put(tree)

        for found in pool.map(judged, chosen):
            outcomes.append(found)
            verdict = "caught  " if found.caught else "SURVIVED"
            place = f"{found.file}:{found.line}"
            print(f"{verdict} {place} {found.change} ({found.seconds:.0f} s) {found.by}", flush=True)  # noqa: T201
            if not found.caught:
                print(f"         {found.code}", flush=True)  # noqa: T201
    caught = sum(found.caught for found in outcomes)
    print(f"{caught} of {len(outcomes)} caught, seed {given.seed}")  # noqa: T201
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(asdict(outcomes[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(found) for found in outcomes)


if __name__ == "__main__":
    main()
