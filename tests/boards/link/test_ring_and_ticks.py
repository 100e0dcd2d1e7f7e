"""The receive ring and the 64-bit count in C against the plainest models of them."""

from __future__ import annotations

import random
import struct
import subprocess
from collections import deque
from pathlib import Path

import pytest

from tests.boards.conftest import FIRMWARE, HOST_FLAGS

RING_ENTRIES = 512
PROGRAM = """
#include <stdio.h>
#include "ring.h"
#include "ticks.h"

static struct ring ring;
static struct ticks ticks;

int main(void)
{
    uint32_t words[4];
    ring_clear(&ring);
    while (fread(words, sizeof words, 1, stdin) == 1) {
        switch (words[0]) {
        case 0: ring_put(&ring, (uint8_t)words[1], words[2] != 0); break;
        case 1: ring_lose(&ring); break;
        case 2: printf("%u %u\\n", (unsigned)ring_take(&ring), (unsigned)ring.errors); break;
        case 3: ring.put += words[1]; ring.taken += words[1]; break;
        default: printf("%llu\\n", (unsigned long long)ticks_now(&ticks, words[1], words[2], words[3])); break;
        }
    }
    return 0;
}
"""
PUT, LOSE, TAKE, SKIP, TICKS = range(5)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ring")
    (folder / "main.c").write_text(PROGRAM)
    sources = [folder / "main.c", FIRMWARE / "link" / "ring.c", FIRMWARE / "core" / "ticks.c"]
    subprocess.run([*HOST_FLAGS, *map(str, sources), "-o", str(folder / "ring")], check=True)
    return folder / "ring"


def run(program: Path, steps: list[tuple[int, ...]]) -> list[str]:
    sent = b"".join(struct.pack("<4I", *step, *[0] * (4 - len(step))) for step in steps)
    return (
        subprocess.run([program], input=sent, capture_output=True, check=True, timeout=60)
        .stdout.decode()
        .split("\n")[:-1]
    )


@pytest.mark.parametrize("start", [0, 2**32 - 700], ids=["fresh", "as_its_counts_wrap"])
def test_the_ring_is_a_queue_that_marks_what_follows_a_loss(start: int, program: Path) -> None:
    chance = random.Random(start)
    steps: list[tuple[int, ...]] = [(SKIP, start)]
    queue: deque[int] = deque()
    errors, marked, expected = 0, False, []
    for turn in range(20_000):
        filling = turn // 1500 % 2 == 0  # in turns fuller and emptier
        if chance.random() < (0.75 if filling else 0.3):
            byte, damaged = chance.randrange(256), chance.random() < 0.02
            steps.append((PUT, byte, int(damaged)))
            if len(queue) == RING_ENTRIES:
                errors, marked = errors + 1, True
            else:
                errors += damaged
                queue.append(byte | 0x100 * (marked or damaged))
                marked = False
        elif chance.random() < 0.01:
            steps.append((LOSE,))
            errors, marked = errors + 1, True
        else:
            steps.append((TAKE,))
            expected.append(f"{queue.popleft() if queue else 0x200} {errors}")
    assert run(program, steps) == expected
    assert errors > 400, "it was full"
    assert any(line.startswith("512 ") for line in expected), "it was empty"


@pytest.mark.parametrize(
    ("mhz", "unit", "blur"), [(216, 216, 500), (480, 480, 500), (25, 256, 300), (480, 480, 2**31 - 1000)]
)
def test_the_count_never_wraps_and_is_exact(mhz: int, unit: int, blur: int, program: Path) -> None:
    """Whatever lies between two looks, up to a turn of the slow counter; `blur`: how far the slow one is off."""
    chance = random.Random(mhz * unit)
    slow_turn = unit << 32
    steps, expected = [], []
    now, slow = 0, 0
    for _ in range(5000):
        now += chance.choice((1, 1000, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 5 * 2**32 + 7, slow_turn - 4 * blur))
        slow = max(slow, (now + chance.randrange(-blur, blur)) // unit)  # a counter does not run backwards
        steps.append((TICKS, now & 0xFFFFFFFF, slow & 0xFFFFFFFF, unit))
        expected.append(str(now))
    assert run(program, steps) == expected
    assert now > 2**44
