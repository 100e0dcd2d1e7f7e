"""A training step in bfloat16 against float32 on this CPU: five backbones, steps in turns, processor time.

OMP_NUM_THREADS=1 python -m tests.benchmarks.training.precision
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from stages.training.config import TrainingConfig
from stages.training.device import at_precision
from stages.training.loop import Recipe, Run, train_step

BACKBONES = {
    "DS-CNN 'MN-M'": NetworkConfig(name="dscnn"),
    "RES-15": NetworkConfig(name="res15"),
    "ResNet-8": NetworkConfig(name="resnet8"),
    "VGG-16, a quarter": NetworkConfig(name="vgg16", width_multiplier=0.25),
    "MobileNet-v2 50 px": NetworkConfig(name="mobilenet_v2", input_shape=(50, 50, 3), width_multiplier=0.5),
}
BATCH, WARM, TIMED = 32, 2, 9
PRECISIONS = ("float32", "bfloat16")


def step_ms(config: NetworkConfig) -> dict[str, float]:
    """Median processor time of a step by precision, steps in turns."""
    height, width, channels = config.input_shape
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, channels, height, width, generator=draw).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, config.classes, (BATCH,), generator=draw)
    runs, recipes, times = {}, {}, {name: [] for name in PRECISIONS}
    for name in PRECISIONS:
        net = at_precision(build(config), name).to(memory_format=torch.channels_last).train()
        runs[name] = Run(net=net, optimiser=torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))
        recipes[name] = Recipe(
            step="prune", epochs=1, steps_per_epoch=100, learning_rate=0.01, label_smoothing=0.1, seed=0,
            training=TrainingConfig(precision=name), precision=name,
        )  # fmt: skip
    for number in range(WARM + TIMED):
        for name in PRECISIONS:
            start_s = time.process_time()
            train_step(recipes[name], runs[name], x, y)
            if number >= WARM:
                times[name].append(1e3 * (time.process_time() - start_s))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    sys.stdout.write("| backbone | float32 ms | bfloat16 ms | float32 / bfloat16 |\n|---|---|---|---|\n")
    for title, config in BACKBONES.items():
        found = step_ms(config)
        ratio = found["float32"] / found["bfloat16"]
        sys.stdout.write(f"| {title} | {found['float32']:.0f} | {found['bfloat16']:.0f} | {ratio:.2f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
