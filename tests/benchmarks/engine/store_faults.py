"""Entries written to and read from a real S3 server through a proxy that spoils a fifth of the answers.

    python -m tests.benchmarks.engine.store_faults [--operations 500] [--seed 24]

Cut connections, 503, truncated and altered bodies, slow answers. An entry that is read must be exactly what was
written; one that cannot be had counts as absent (its step would run again). Needs s3fs, moto[s3], flask, flask-cors.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from tests.pipeline.store.conftest import FaultProxy, Lab, make_bucket, s3_server, set_s3_environment
from tests.pipeline.store.test_shared import exercised


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=24)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, s3_server() as port:
        direct = f"http://127.0.0.1:{port}"
        set_s3_environment(os.environ.__setitem__, direct)
        make_bucket(direct, "faulty")
        proxy = FaultProxy(port, 0.2, random.Random(chosen.seed))
        begin = time.monotonic()
        with proxy.serving() as endpoint:
            os.environ["AWS_ENDPOINT_URL"] = endpoint
            lab = Lab("s3://faulty/lab", Path(folder))
            counts = exercised(lab, chosen.operations, random.Random(chosen.seed))
        took = f"{time.monotonic() - begin:.0f} s"
        print(f"{chosen.operations} operations in {took}: {counts}, none with other bytes")  # noqa: T201
        print(f"faults: {proxy.told}; sentences: {len(lab.told)}")  # noqa: T201
        for text in sorted(set(lab.told))[:5]:
            print(f"  {text}")  # noqa: T201


if __name__ == "__main__":
    main()
