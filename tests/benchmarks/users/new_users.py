"""Three newcomers with the defaults: 600 pictures, 400 sounds, and the pictures with a residual network of their own.

    python -m tests.benchmarks.users.new_users [--python VENV/bin/python] [--folder DIR] [CASE...]

Each makes its files by a script, then `pipeline init`, `pipeline run` in an empty folder, with the wheel of VENV or,
without it, this clone. Printed: seconds, int8 accuracy and whether the budgets hold; everything else is in DIR.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[3]
RATE_HZ = 16_000
NETWORK = '''
import torch
from torch import nn


def convolution(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Net(nn.Module):
    """A residual block, two branches that are concatenated, and another residual block behind them."""

    def __init__(self, channels, classes, width=16):
        super().__init__()
        self.stem = convolution(channels, width, 2)
        self.same = convolution(width, width)
        self.left, self.right = convolution(width, width, 2), convolution(width, width, 2)
        self.wide = convolution(2 * width, 2 * width)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes))

    def forward(self, x):
        x = self.stem(x)
        x = x + self.same(x)
        x = torch.cat([self.left(x), self.right(x)], dim=1)
        return self.head(x + self.wide(x))


def make(input_shape, classes):
    return Net(input_shape[2], classes)
'''


def make_pictures(root: Path, count: int = 600) -> None:
    """Discs, boxes and stripes of any colour on any other, with noise."""
    rng = np.random.default_rng(0)
    width, height = 80, 64
    for number in range(count):
        kind = ("box", "disc", "stripes")[number % 3]
        ground, colour = (tuple(rng.integers(0, 256, 3).tolist()) for _ in range(2))
        image = Image.new("RGB", (width, height), ground)
        draw, side = ImageDraw.Draw(image), int(rng.integers(height // 3, 2 * height // 3))
        x, y = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
        if kind == "disc":
            draw.ellipse((x, y, x + side, y + side), fill=colour)
        elif kind == "box":
            draw.rectangle((x, y, x + side, y + side), fill=colour)
        else:
            for place in range(x, x + side, 6):
                draw.line((place, y, place, y + side), fill=colour, width=3)
        noisy = np.asarray(image) + rng.normal(0, 12, (height, width, 3))
        file = root / kind / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file)


def make_sounds(root: Path, count: int = 400) -> None:
    """Rising and falling tones, beeps and hisses, each somewhere else and as loud as it likes."""
    rng = np.random.default_rng(0)
    t = np.arange(RATE_HZ) / RATE_HZ
    for number in range(count):
        kind, hz = ("beep", "down", "hiss", "up")[number % 4], rng.uniform(300, 900)
        if kind == "up":
            wave = np.sin(2 * np.pi * (hz * t + hz * t * t))
        elif kind == "down":
            wave = np.sin(2 * np.pi * (3 * hz * t - hz * t * t))
        elif kind == "beep":
            wave = np.sin(2 * np.pi * hz * t) * (np.sin(2 * np.pi * rng.uniform(3, 6) * t) > 0)
        else:
            wave = rng.normal(0, 1, RATE_HZ) * np.exp(-(((t - rng.uniform(0.3, 0.7)) / 0.2) ** 2))
        file = root / kind / f"{number:04}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        loud = wave * rng.uniform(0.1, 0.6) + rng.normal(0, 0.02, RATE_HZ)
        soundfile.write(file, loud.clip(-1, 1), RATE_HZ)


CASES = {
    "pictures": (make_pictures, ["--images", "../data"]),
    "sounds": (make_sounds, ["--sounds", "../data"]),
    "own_network": (make_pictures, ["--images", "../data", "--network", "my_nets:make"]),
}


def newcomer(case: str, folder: Path, python: str) -> None:
    make, options = CASES[case]
    project = folder / case / "project"
    project.mkdir(parents=True, exist_ok=True)
    make(folder / case / "data")
    if case == "own_network":
        (project / "my_nets.py").write_text(NETWORK)
    env = os.environ if python != sys.executable else {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = time.monotonic()
    for words in (["init", "mine", *options], ["run", "mine"]):
        done = subprocess.run([python, "-P", "-m", "pipeline.cli", *words], cwd=project, env=env, capture_output=True)
        (folder / case / f"{words[0]}.txt").write_bytes(done.stdout + b"\n" + done.stderr)
        if done.returncode:
            print(f"{case}: {words[0]} ended with {done.returncode}: {done.stderr.decode().splitlines()[-1]}")  # noqa: T201
            return
    seconds = time.monotonic() - begin
    summary = project / "runs" / "mine" / "latest" / "report" / "summary.csv"
    (row,) = csv.DictReader(summary.read_text().splitlines())
    print(f"{case}: {seconds:.0f} s, accuracy {row['accuracy_int8']}, fits {row['fits']}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="new_users_"))
    for case in chosen.cases or CASES:
        newcomer(case, folder, chosen.python)


if __name__ == "__main__":
    main()
