"""A training step on this CPU by torch's own convolutions, by ours (stages/training/layout.py), by ours in bfloat16.

Six backbones, steps in turns, processor time.

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
from stages.training.layout import with_quick_kernels
from stages.training.loop import Recipe, Run, train_step

BACKBONES = {
    "DS-CNN 'MN-M'": NetworkConfig(name="dscnn"),
    "RES-15": NetworkConfig(name="res15"),
    "broadcast keywords": NetworkConfig(name="bc_kws", width=24, input_shape=(49, 40, 1)),
    "ResNet-8": NetworkConfig(name="resnet8"),
    "VGG-16, a quarter": NetworkConfig(name="vgg16", width_multiplier=0.25),
    "MobileNet-v2 50 px": NetworkConfig(name="mobilenet_v2", input_shape=(50, 50, 3), width_multiplier=0.5),
}
BATCH, WARM, TIMED = 32, 2, 9
TORCH = "torch"
ARMS = {TORCH: "float32", "float32": "float32", "bfloat16": "bfloat16"}  # precision


def step_ms(config: NetworkConfig) -> dict[str, float]:
    """Median processor time of a step by arm, steps in turns."""
    height, width, channels = config.input_shape
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, channels, height, width, generator=draw).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, config.classes, (BATCH,), generator=draw)
    runs, recipes, times = {}, {}, {name: [] for name in ARMS}
    for name, precision in ARMS.items():
        net = build(config) if name == TORCH else with_quick_kernels(build(config))
        net = at_precision(net, precision).to(memory_format=torch.channels_last).train()
        runs[name] = Run(net=net, optimiser=torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))
        recipes[name] = Recipe(
            step="prune", epochs=1, steps_per_epoch=100, learning_rate=0.01, label_smoothing=0.1, seed=0,
            training=TrainingConfig(precision=precision), precision=precision,
        )  # fmt: skip
    for number in range(WARM + TIMED):
        for name in ARMS:
            start_s = time.process_time()
            train_step(recipes[name], runs[name], x, y)
            if number >= WARM:
                times[name].append(1e3 * (time.process_time() - start_s))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    sys.stdout.write("| backbone | torch ms | float32 ms | bfloat16 ms | torch / float32 | float32 / bfloat16 |\n")
    sys.stdout.write(f"|{'---|' * 6}\n")
    for title, config in BACKBONES.items():
        found = step_ms(config)
        cells = [f"{found[name]:.0f}" for name in ARMS]
        cells += [f"{found[a] / found[b]:.2f}" for a, b in ((TORCH, "float32"), ("float32", "bfloat16"))]
        sys.stdout.write(f"| {title} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
