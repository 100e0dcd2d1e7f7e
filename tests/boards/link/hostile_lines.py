"""Command lines that wish the firmware ill, the same for the same seed: random bytes, known commands with damage,
numbers beyond every limit, loads that are too large, never begun, never ended or of the wrong digits.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator

SEED = 20_261_116
KNOWN = (
    *(
        "name",
        "profile",
        "timestamp",
        "db load 16",
        "db 00ff",
        "db print",
        "infer 1 0",
        "infer 1 1",
        "infer",
        "results",
    ),
    *(
        "crc",
        "output",
        "layers",
        "memory",
        "clock",
        "build",
        "errors",
        "baud",
        "baud 921600",
        "baud 115200",
        "baud ok",
        "db",
    ),
    *("db load 189", "db load 190", "db place 16", "db place 189", "db place 190", "db load", "db load 0", "", " "),
)
AUDIO = ("audio load 64", "audio load 32000", "audio load 32001", "audio place 640", "audio crc", "audio", "stream", "")
SLOW = ("reset", "listen", "features", "stream feed", "stream trace", "stream start")  # each takes milliseconds
NOT_END = [byte for byte in range(256) if byte != ord("%")]
NUMBERS = (0, 1, 79, 80, 81, 188, 189, 190, 255, 256, 489, 490, 491, 32000, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
NUMBERS = (*NUMBERS, 2**32, 2**32 + 16, 2**63, 2**64, 10**8, 999_999_999, 10**9, 10**30, -1, -16)


def hostile_lines(count: int, *, seed: int = SEED, slow_share: float = 0.003) -> Iterator[bytes]:
    """Lines without their %."""
    chance = random.Random(seed)
    makers = (_random_bytes, _known, _known, _known, _damaged, _damaged, _number, _digits, _base64, _joined)
    for _ in range(count):
        if chance.random() < slow_share:
            yield chance.choice(SLOW).encode()
        else:
            yield chance.choice(makers)(chance)


def _random_bytes(chance: random.Random) -> bytes:
    length = chance.choice((3, 20, 79, 80, 81, 120, 249, 250, 251, 252, 700))
    return bytes(chance.choices(NOT_END, k=chance.randrange(length + 1)))


def _known(chance: random.Random) -> bytes:
    return chance.choice(chance.choice((KNOWN, AUDIO))).encode()


def _damaged(chance: random.Random) -> bytes:
    text = bytearray(_known(chance))
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(text) + 1)
        # Few digits: a repeated `infer 999999` would take an hour, and is no danger.
        text[place : place + chance.randrange(3)] = bytes(
            chance.choices(b"  01afFgxz\r\n\0\t-+\x7f\xfe\xff", k=chance.randrange(3))
        )
    return bytes(text)


def _number(chance: random.Random) -> bytes:
    command = chance.choice(
        ("db load", "db place", "audio load", "audio place", "baud", "infer 0", "infer 1", "timestamp")
    )
    number = chance.choice(NUMBERS)
    if command == "infer 1" and 9 < number < 10**9:
        number = -number
    return f"{command} {number}{chance.choice(('', '', ' ', 'x', ' 1', ' 1 2 3 4 5 6'))}".encode()


def _digits(chance: random.Random) -> bytes:
    digits = "".join(chance.choices("0123456789abcdefABCDEF", k=chance.randrange(80)))
    return f"db {digits}{chance.choice(('', '', '', 'g', ' 00', 'zz'))}".encode()


def _base64(chance: random.Random) -> bytes:
    text = base64.b64encode(chance.randbytes(chance.randrange(190))).decode()
    return f"audio {text}{chance.choice(('', '', '', '=', '==', '!', ' x'))}".encode()


def _joined(chance: random.Random) -> bytes:
    return chance.choice((b" ", b"", b"\r\n")).join(_known(chance) for _ in range(chance.randrange(2, 6)))
