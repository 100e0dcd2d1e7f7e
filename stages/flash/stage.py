"""flash: bring the image onto the board, or boot its twin, and prove that it runs.

Reads   image (firmware.elf), image_bin, twin (twin.elf), footprint (build_id)
Writes  flash.json: how it was flashed, by which probe, the build id that the firmware answered, digest of the image
Fails   HardwareAbsent without the board; HardwareError when another job keeps it; StageError when the running firmware
        answers another build id
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Config, Target, read_json, stage, write_json
from pipeline.units import Seconds


class FlashConfig(Config):
    """Which of several look-alike boards."""

    probe_serial: str = ""  # serial number of the debug probe; needed only with two boards of one kind
    lock_wait: Seconds = 600.0  # for another job that works with the board: a measurement takes minutes


@dataclass(frozen=True, kw_only=True)
class Flashed:
    flash: Path  # flash.json


@stage(
    "flash",
    touches_hardware=True,
    packages=("pyserial", "mbed-tools"),
    twin_programs=("qemu-system-arm",),
    sources=("boards/{board}/board.yaml",),
)
def run(
    image: Path,
    image_bin: Path,
    twin: Path,
    footprint: Path,
    *,
    config: FlashConfig,
    target: Target,
    out_dir: Path,
) -> Flashed:
    from hil.bench.flasher import Image
    from stages.flash.proof import BoardWanted, boot_twin, flash_board

    built = read_json(footprint)
    build_id = built["build_id"]
    if target.source == "virtual":
        proof = boot_twin(twin, target.board, build_id)
    else:
        wanted = BoardWanted(target.board, config.probe_serial, config.lock_wait, baud=built["link"]["baud"])
        proof = flash_board(Image(image, image_bin), wanted, build_id)
    return Flashed(flash=write_json(out_dir / "flash.json", proof))
