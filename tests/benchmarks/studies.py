"""Every study of pipeline.yaml in its quick profile, through the command line: it runs, and what it costs.

    python -m tests.benchmarks.studies [NAME...] [--cache FOLDER]

Exit code 1 if one of them fails, or answers without a line of its table or without a chart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline.config import load_project

ROOT = Path(__file__).resolve().parents[2]


def answered(name: str, folder: Path) -> tuple[bool, str]:
    """Whether a study gave a table and charts, and a line about it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-m", "pipeline.cli", "study", name, "--quick", "--virtual", "-j", "1", "--json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        return False, f"{name}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    told = json.loads(done.stdout)
    charts = list((folder / "sweeps" / f"study-{name}-quick" / "figures").glob("*.svg"))
    told_all = len(told["lines"]) > 0 and told["open"] == 0 and len(charts) > 0
    return told_all, f"{name}: {len(told['lines'])} lines, {len(charts)} charts, {cpu_s:.1f} s of processor time"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cache", type=Path)
    chosen = parser.parse_args()
    names = chosen.names or list(load_project(ROOT / "pipeline.yaml").studies)
    if chosen.cache:
        os.environ["PIPELINE_CACHE"] = str(chosen.cache.resolve())
    all_answered = True
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "pipeline.yaml", folder)
        for name in names:
            is_answered, line = answered(name, Path(folder))
            all_answered &= is_answered
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return int(not all_answered)


if __name__ == "__main__":
    sys.exit(main())
