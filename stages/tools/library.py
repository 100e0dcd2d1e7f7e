"""`pipeline compile`: a .tflite as a folder of C for anybody's project, with nothing of ours around it.

The folder holds the network twice, for the Cortex-M7 (fast kernels, generated assembly) and in portable C for every
other machine, both with the same results bit for bit; the kernels that either needs and no others; one header with
three functions; a CMake project; and a README with what it takes. Refuses what the firmware cannot run, by name, and a
folder that holds something already, before anything is written.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import get_args

from boards import BOARDS_FOLDER
from pipeline.errors import ConfigError, StageError
from pipeline.stage import Answer
from stages.firmware.economy import compile_within
from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import CompiledModel, compile_model, model_assembly, model_source
from stages.firmware.placement import Placement
from stages.graph.memory.arena_layout import arena_layout
from stages.graph.memory.overlap import Runtime
from stages.graph.memory.resources import graph_macs
from stages.graph.memory.runtime_bound import runtime_bytes
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.float_edges import require_int8, strip_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.tools.library_text import cmake_lists, header, main_source, placement_header, readme, toolchain_file

_FIRMWARE = BOARDS_FOLDER / "firmware"
_INCLUDE = re.compile(r'#include "(kernels/[\w/]+\.h)"')
_PLACEMENT = Placement(region="", macro="PLACE_FAST")


def compile_library(model: Path, out: Path, weights: Weights, runtime: Runtime) -> Answer:
    """Write the folder `out` and say what the network takes."""
    for option, value, known in (("weights", weights, get_args(Weights)), ("runtime", runtime, get_args(Runtime))):
        if value not in known:
            raise ConfigError(f"--{option}: found {value!r}, needed one of {', '.join(known)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StageError(f"{out}: is there already, needed a new or an empty folder")
    given = strip_float_edges(read_tflite(model)).graph
    require_int8(given, model.name)
    graph, macs = simplify(given), graph_macs(given)
    fast = compile_within(graph, runtime_bytes(given), weights=weights, runtime=runtime)
    portable = compile_model(graph, runtime=runtime)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        made = Path(scratch) / "made"
        _write(made, fast, portable, model.name, _figures(fast, weights, macs))
        if out.exists():
            out.rmdir()
        made.rename(out)
    record = _figures(fast, weights, macs)
    width = max(map(len, record))
    lines = [f"{key:<{width}}  {f'{value:,}' if isinstance(value, int) else value}" for key, value in record.items()]
    return Answer("\n".join([*lines, f"start with {out}/README.md"]), record)


def _write(
    folder: Path, fast: CompiledModel, portable: CompiledModel, name: str, figures: dict[str, int | str]
) -> None:
    for part in ("cortex_m7", "portable", "kernels", "example"):
        (folder / part).mkdir(parents=True)
    (folder / "model.h").write_text(header(fast, name))
    (folder / "placement.h").write_text(placement_header())
    (folder / "cortex_m7" / "model.c").write_text(model_source(fast, _PLACEMENT, marks=False))
    assembly = model_assembly(fast)
    if assembly:
        (folder / "cortex_m7" / "model.S").write_text(assembly)
    (folder / "portable" / "model.c").write_text(model_source(portable, _PLACEMENT, marks=False))
    sources = {kind: kernel_files(model) for kind, model in (("cortex_m7", fast), ("portable", portable))}
    for file in sorted(sources["cortex_m7"] | sources["portable"]):
        (folder / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(_FIRMWARE / file, folder / file)
    lists = {kind: sorted(file for file in files if file.endswith(".c")) for kind, files in sources.items()}
    (folder / "CMakeLists.txt").write_text(cmake_lists(lists, has_assembly=bool(assembly)))
    (folder / "cortex_m7.cmake").write_text(toolchain_file())
    (folder / "example" / "main.c").write_text(main_source(fast))
    (folder / "README.md").write_text(readme(fast, name, figures, lists))


def kernel_files(model: CompiledModel) -> set[str]:
    """The kernels that a network needs, with what they include, from boards/firmware."""
    waiting: list[str] = [header for call in model.calls for header in call.headers]
    found: set[str] = set()
    while waiting:
        file = waiting.pop()
        if file in found or not (_FIRMWARE / file).exists():
            continue
        found.add(file)
        waiting += _INCLUDE.findall((_FIRMWARE / file).read_text())
        waiting.append(file.removesuffix(".h") + ".c" if file.endswith(".h") else file)
    return found


def _figures(model: CompiledModel, weights: Weights, macs: int) -> dict[str, int | str]:
    return {
        "ops": len(model.network.ops),
        "macs": macs,
        "macs_executed": graph_macs(model.network),
        "runtime": model.runtime,
        "weights": weights,
        "arena_bytes": model.layout.arena_bytes,
        "arena_bytes_classic": arena_layout(model.network).arena_bytes,
        "scratch_bytes": model.scratch_bytes,
        **({"state_bytes": model.state_bytes} if model.state_bytes else {}),
        "ram_bytes": model.layout.arena_bytes + model.scratch_bytes + model.state_bytes,
        "constant_bytes": model.constant_bytes,
        "inner_loops_bytes": model.most_code_bytes,
    }
