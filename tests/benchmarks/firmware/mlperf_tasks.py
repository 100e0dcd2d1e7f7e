"""All five tasks of MLPerf Tiny, at their real sizes, on the twin under the stock-like runner: p, a and e of each.

python -m tests.benchmarks.firmware.mlperf_tasks [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hil.virtual.twin import Twin
from stages.tools.mlperf.tasks import TASKS
from tests.benchmarks.subjects.benchmark_networks import anomaly_detector, dscnn, mobilenet_v1, resnet_8
from tests.boards.link.driven_tasks import built, host_errors, play
from tests.boards.link.stock_runner import StockRunner
from tests.boards.twin.qemu_twin import running_twin
from tests.stages.firmware.front_ends import clips_of_every_kind, make_task

AD_INPUTS, OTHERS = 200, 5
NETWORKS = {"KWS": dscnn, "IC": resnet_8, "VWW": mobilenet_v1, "AD": anomaly_detector}
SHARES = np.random.default_rng(0)


def main(folder: Path) -> None:
    for code, task in TASKS.items():
        place = folder / code
        place.mkdir(parents=True)
        if task.stream:
            spoken = make_task()
            graph, dataset = spoken.graph, spoken.write(place)
        else:
            graph, dataset = NETWORKS[code](), None
        started = time.monotonic()
        images = built(task, graph, place, dataset)
        values = graph.tensors[graph.inputs[0]].elements
        if task.input == "float32":
            floats = SHARES.normal(0, 1.5, (AD_INPUTS, values)).astype("<f4")
            files, wanted = [one.tobytes() for one in floats], host_errors(graph, floats)
        else:
            files, wanted = [SHARES.bytes(values) for _ in range(OTHERS)], []
        sound = clips_of_every_kind(16_000, each=1).reshape(-1)
        for mode, image in (("p", images.performance), ("a", images.performance), ("e", images.energy)):
            with running_twin(image.twin, timeout_s=60) as (twin, _):
                runner = StockRunner(twin.ask)
                name, model = runner.identify()
                assert model == task.model and name.startswith("virtual")
                if task.stream:
                    told = "start and stop"
                    assert runner.stream(lambda: [])[1][-1] == "m-busy-[0]"
                elif mode == "p":
                    told = f"{runner.performance(files[:5], 3, 1).inferences_per_s:.3f} inf/s by its instructions"
                elif mode == "a":
                    scores = [runner.scores(file) for file in files]
                    equal = sum(f"{one[0]:.3f}" == other for one, other in zip(scores, wanted, strict=False))
                    told = f"{len(scores)} inputs" + (f", {equal} scores equal the host's" if wanted else "")
                else:
                    runner.load(files[0])
                    assert runner.infer(2, 1)[0] == ()
                    told = "two pulses a block"
                sys.stdout.write(f"{code} {mode}: {told} ({time.monotonic() - started:.0f} s)\n")
        if task.stream:
            with Twin(images.performance.twin, name="twin") as twin_of_hil:
                link = twin_of_hil.link
                runner = StockRunner(lambda command: list(link.command(command)))  # noqa: B023
                times, lines = runner.stream(lambda: play(link, sound, 0.02, 0.04))  # noqa: B023
                sys.stdout.write(f"{code}: {len(times)} words in {len(sound) / 16_000:g} s, {lines[-1]}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else scratch))
