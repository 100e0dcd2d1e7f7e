"""C initialisers that a person can read: arrays with a title, structures with named members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stages.graph.arithmetic.fixed_point import Multiplier

_LINE_CHARACTERS = 114
_NUMBER_CHARACTERS = {"int8_t": 6, "uint8_t": 5, "int16_t": 8, "uint16_t": 7, "int32_t": 13}  # with comma and space


def c_comment(text: str) -> str:
    """A one-line comment; names from a file cannot end it early or break the line."""
    visible = "".join(character if character.isprintable() else "?" for character in text)
    return f"/* {visible.replace('*/', '* /').replace('/*', '/ *')} */"


def c_array(c_type: str, name: str, values: np.ndarray, title: str) -> str:
    """A constant array of integers, from a whole word on: built for size, gcc puts bytes anywhere."""
    numbers = list(map(_int32, values.reshape(-1).tolist()))
    a_line = _LINE_CHARACTERS // _NUMBER_CHARACTERS[c_type]
    starts = range(0, len(numbers), a_line)
    body = "\n".join(f"    {', '.join(numbers[start : start + a_line])}," for start in starts)
    aligned = "" if c_type == "int32_t" else " __attribute__((aligned(4)))"
    return f"{c_comment(title)}\nstatic const {c_type} {name}[{values.size}]{aligned} = {{\n{body}\n}};\n\n"


def c_channels(name: str, bias: np.ndarray, multipliers: Sequence[Multiplier]) -> str:
    """The bias and the scaling of each output channel."""
    rows = [
        f"{{{_int32(int(offset))}, {factor.mantissa}, {max(0, factor.shift)}, {max(0, -factor.shift)}}}"
        for offset, factor in zip(bias, multipliers, strict=True)
    ]
    lines = "\n".join(f"    {', '.join(rows[start : start + 4])}," for start in range(0, len(rows), 4))
    return f"static const struct requantise_channel {name}[{len(rows)}] = {{\n{lines}\n}};\n\n"


def c_struct(c_type: str, name: str, members: Mapping[str, object]) -> str:
    """A constant structure."""
    lines = "\n".join(f"    .{member} = {_value(value)}," for member, value in members.items())
    return f"static const struct {c_type} {name} = {{\n{lines}\n}};\n\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f".{member} = {_value(inner)}" for member, inner in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(_value, value)) + "}"
    return _int32(value) if isinstance(value, int) else str(value)


def _int32(value: int) -> str:
    # C reads -2147483648 as minus a number that an int cannot hold.
    return "INT32_MIN" if value == -(2**31) else str(value)
