"""Random networks of every operator, compiled and run on the twin, every layer against TensorFlow Lite Micro.

    python -m tests.benchmarks.random_networks --count 1000 [--first 0] [--chains]

Each network is built with fast, small or portable kernels in turn; with --chains, layers are fused and outputs lie
over inputs wherever they can. Exit code 1 and the operators at fault if any bit of any layer differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.stages.firmware.network_check import Agreement, compare_on_twin
from tests.stages.firmware.random_networks import random_chains, random_column, random_network
from tests.stages.firmware.test_random_networks import KERNELS

_AT_ONCE = 50  # networks in one image: the twin's memory holds them all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first network")
    parser.add_argument("--chains", action="store_true", help="fuse layers row-wise, whether it pays or not")
    given = parser.parse_args()
    found, start = Agreement(), time.monotonic()
    end = given.first + given.count
    for first in range(given.first, end, _AT_ONCE):
        seeds = range(first, min(first + _AT_ONCE, end))
        grown = {seed: (random_column if given.chains and seed % 2 else random_network)(seed) for seed in seeds}
        networks = [(f"seed {seed}", graph, KERNELS[seed % len(KERNELS)]) for seed, graph in grown.items()]
        with tempfile.TemporaryDirectory() as folder:
            chains = None
            if given.chains:
                chains = [
                    random_chains(graph, weights, seed)
                    for seed, (_, graph, weights) in zip(seeds, networks, strict=True)
                ]
            compare_on_twin(networks, Path(folder), found, chains=chains)
        sys.stderr.write(f"{found.networks} networks, {len(found.wrong)} wrong, {time.monotonic() - start:.0f} s\n")
    for line in found.wrong:
        sys.stdout.write(f"wrong: {line}\n")
    sys.stdout.write(f"networks            {found.networks}\n")
    sys.stdout.write(f"networks wrong      {len(found.wrong)}\n")
    sys.stdout.write(f"chains              {found.chains}\n")
    sys.stdout.write(f"layers compared     {found.results}\n")
    sys.stdout.write(f"values compared     {found.values}, {found.inside / found.values:.0%} of them not saturated\n")
    for title, counts in (("operators", found.kinds), ("kernels", found.kernels)):
        sys.stdout.write(f"{title:<20}{', '.join(f'{name} {count}' for name, count in counts.most_common())}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
