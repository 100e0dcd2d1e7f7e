"""Entries written to and read from a real server through a proxy that spoils what it answers.

    python -m tests.benchmarks.engine.store_faults [s3|sftp] [--operations 500] [--seed 24]

S3: of all answers a fifth is cut, a 503, truncated, altered or slow; needs s3fs, moto[s3], flask, flask-cors. SFTP: of
all packets one in 200 is cut off, altered or slow; needs paramiko. An entry that is read must be exactly what was
written; one that cannot be had counts as absent (its step would run again).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.pipeline.store.conftest import FaultProxy, Lab, make_bucket, s3_server, set_s3_environment
from tests.pipeline.store.test_shared import exercised


@contextlib.contextmanager
def s3(folder: Path, rng: random.Random) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The URL of a store behind the proxy, and what the proxy did."""
    with s3_server() as port:
        direct = f"http://127.0.0.1:{port}"
        set_s3_environment(os.environ.__setitem__, direct)
        make_bucket(direct, "faulty")
        proxy = FaultProxy(port, 0.2, rng)
        with proxy.serving() as endpoint:
            os.environ["AWS_ENDPOINT_URL"] = endpoint
            yield "s3://faulty/lab", proxy.told


@contextlib.contextmanager
def sftp(folder: Path, rng: random.Random) -> Iterator[tuple[str, Mapping[str, int]]]:
    from tests.pipeline.store.sftp_server import LineProxy, sftp_server

    os.environ["HOME"] = str(folder / "home")
    os.environ.pop("SSH_AUTH_SOCK", None)
    with sftp_server(folder / "home") as port:
        proxy = LineProxy(port, 0.005, rng)
        with proxy.serving() as spoilt:
            yield f"sftp://lab@127.0.0.1:{spoilt}{folder}/lab", proxy.told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=("s3", "sftp"), nargs="?", default="s3")
    parser.add_argument("--operations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=24)
    chosen = parser.parse_args()
    server = {"s3": s3, "sftp": sftp}[chosen.server]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), random.Random(chosen.seed)) as (url, faults):
        begin = time.monotonic()
        lab = Lab(url, Path(folder))
        counts = exercised(lab, chosen.operations, random.Random(chosen.seed))
        took = f"{time.monotonic() - begin:.0f} s"
    print(f"{chosen.operations} operations in {took}: {counts}, none with other bytes")  # noqa: T201
    print(f"faults: {dict(faults)}; sentences: {len(lab.told)}")  # noqa: T201
    for text in sorted(set(lab.told))[:5]:
        print(f"  {text}")  # noqa: T201


if __name__ == "__main__":
    main()
