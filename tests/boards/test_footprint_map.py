"""footprint.json says what the linker's own map says, for every board."""

from __future__ import annotations

import re

import pytest

from boards import board_names, load_board
from pipeline.stage import read_json
from stages.firmware.stage import Firmware

SECTION = re.compile(r"^(\.[\w.]+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)(?: load address 0x([0-9a-f]+))?$", re.M)
REGION = re.compile(r"^(\w+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+[rwx]+$", re.M)
MOST_GAP_BYTES = 32  # what aligning a section may cost


@pytest.mark.parametrize("name", board_names())
def test_the_footprint_is_that_of_the_linker_map(name: str, images: dict[str, Firmware]) -> None:
    text = images[name].image.with_suffix(".elf.map").read_text()
    head, _, body = text.partition("Linker script and memory map")
    regions = {region: (int(start, 16), int(size, 16)) for region, start, size in REGION.findall(head)}
    footprint = read_json(images[name].footprint)
    board = load_board(name)
    assert set(regions) == {"FLASH", *(region.upper() for region in board.arena_regions)}

    used = dict.fromkeys(board.memories, 0)
    sections = {}
    ends = {region: start for region, (start, _) in regions.items()}
    for section, start, size, loaded in SECTION.findall(body):
        if int(size, 16) == 0 or int(start, 16) == 0:  # empty, or debugging information
            continue
        sections[section] = int(size, 16)
        # Initialised data lie in RAM and, until start-up, in flash; a load address of what follows them means nothing.
        for address in {start, loaded} if section == ".data" else {start}:
            (region,) = (r for r, (low, length) in regions.items() if low <= int(address, 16) < low + length)
            used[region.lower()] += int(size, 16)
            ends[region] = max(ends[region], int(address, 16) + int(size, 16))

    assert footprint["sections"] == sections
    assert {region: entry["used_bytes"] for region, entry in footprint["regions"].items()} == used
    assert footprint["flash_bytes"] == used["flash"]
    assert footprint["ram_bytes"] + footprint["ram_weights_bytes"] == sum(used.values()) - used["flash"]
    for region, (start, length) in regions.items():
        assert footprint["regions"][region.lower()]["size_bytes"] == length
        assert ends[region] <= start + length, "it fits"
        gaps = ends[region] - start - used[region.lower()]
        assert 0 <= gaps < MOST_GAP_BYTES * len(sections), "and nothing lies there that is not counted"


@pytest.mark.parametrize("name", board_names())
def test_the_flash_image_is_as_long_as_the_footprint_says(name: str, images: dict[str, Firmware]) -> None:
    footprint = read_json(images[name].footprint)
    gap = images[name].image_bin.stat().st_size - footprint["flash_bytes"]
    assert 0 <= gap < MOST_GAP_BYTES * len(footprint["sections"])
