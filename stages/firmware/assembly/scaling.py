"""From a doubled sum to int8: TensorFlow Lite Micro's double rounding in four or five instructions.

With weights and bias doubled, SMMLAR gives the rounding doubling high product, plus half of the last place and the zero
point, which together are the addend; adding the sign makes ties go away from zero; then shift and saturate. Where the
lowest value of the output is its zero point, as behind every ReLU, the sign does not matter: all negative sums end
there. Such a layer can take one shift for all of its channels: finer sums (weights shifted left), and SMMLA with the
half of the first rounding in its addend, too. Two roundings of a positive sum are one rounding down of the sum and both
halves, whatever the fineness, so that it stays exact, and the shift comes with the saturation.
"""

from __future__ import annotations

from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_sign,
    and_sign,
    limited,
    multiply,
    saturate,
    shift_right,
)


def scaled_and_limited(
    into: str, total: str, scaling: tuple[str, str, str, str], limits: tuple[int, int]
) -> list[Instruction]:
    """int8 from a doubled sum, which is lost; `scaling` are registers: multiplier, addend, shift, mask or ''.

    Without a mask the shift is one less than the right shift.
    """
    multiplier, addend, shift, mask = scaling
    code = [multiply("smmlar", into, total, multiplier, addend)]
    code += [and_sign(total, mask, total), add(into, into, total)] if mask else [add_sign(into, into, total)]
    code += [shift_right(into, into, shift), saturate(into, into, 0 if mask else 1)]
    return code + limited(into, limits)


def signed_scaling(
    total: str, into: str, scaling: tuple[str, str, str, str], limits: tuple[int, int], right: int = 0
) -> list[Instruction]:
    """The same in place, on a whole right shift; `into` is needed in between. Without it, the sign is left out.

    `right`: the shift of all channels, if it is one. A mask is wanted only of channels some of which have no right
    shift, so that their ties go upwards.
    """
    return [*rescaled(total, into, scaling, right), *narrowed(total, limits, right)]


def rescaled(total: str, into: str, scaling: tuple[str, str, str, str], right: int) -> list[Instruction]:
    """The first part of it: all that depends on the channel."""
    multiplier, addend, shift, mask = scaling
    if right:
        return [multiply("smmla", total, total, multiplier, addend)]
    if not into:
        code = [multiply("smmlar", total, total, multiplier, addend)]
    elif mask:
        code = [multiply("smmlar", into, total, multiplier, addend), and_sign(total, mask, total)]
        code += [add(total, total, into)]
    else:
        code = [multiply("smmlar", into, total, multiplier, addend), add_sign(total, into, total)]
    return [*code, shift_right(total, total, shift)]


def narrowed(total: str, limits: tuple[int, int], right: int) -> list[Instruction]:
    """The rest."""
    return [saturate(total, total, right), *limited(total, limits)]
