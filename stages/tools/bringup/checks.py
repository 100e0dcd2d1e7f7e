"""The checks of a first day, each in words: what was expected, what was found, what to do.

A check that raises has failed, with what the link said as its finding; every wait of the link has a limit, so that no
fault of a board can keep them from ending.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from boards import Board
from hil.bench.probes import LEAST_FIRMWARE, is_new_enough
from hil.link.device_link import DeviceLink
from hil.link.replies import single
from pipeline.errors import PipelineError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph

RATES = (115200, 230400, 460800, 921600)
CLOCK_S, HINT_SHARE, MOST_SHARE = 60.0, 0.0001, 0.001
WATCHDOG_S = 70.0  # the F7's slowest LSI makes it 61 s
TROUBLES = {
    "HSE": "the external clock did not start: is the ST-LINK powered; are the solder bridges as delivered?",
    "PLL": "the PLL does not lock: is HSE at the frequency of wiring.h?",
    "VOS": "the core voltage is not reached: is the supply above 2.7 V, and the regulator that of wiring.h?",
    "ACR": "flash refuses its wait states: is it this chip?",
    "REV": "this silicon allows 400 MHz at most and misreads AXI SRAM: use a board with revision V",
}
OPTION_REGISTERS = ("FLASH_OPTCR", "FLASH_OPTSR")
LAST_STAGE_REGISTERS = ("SCB_CCR", "MPU_CTRL")


class HostClock(Protocol):
    """Time as the host has it."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Check:
    """One line of the record."""

    name: str
    expected: str
    found: str
    ok: bool
    todo: str = ""


@dataclass(frozen=True)
class Expected:
    """What the images on the device are made of."""

    board: Board
    graph: Graph  # as firmware compiled it
    kernels: Sequence[Mapping[str, Any]]  # footprint.json: ops
    stack_bound_bytes: int
    flash_crc: Callable[[int, int], int]  # of the image, from an address on
    inputs: np.ndarray


def attempt(name: str, expected: str, todo: str, act: Callable[[], tuple[bool, str]]) -> Check:
    """Run one check; an error of the link is a finding."""
    try:
        ok, found = act()
    except PipelineError as error:
        ok, found = False, str(error)
    return Check(name, expected, found, ok, "" if ok else todo)


def probe_firmware(tell: Callable[[], str | None]) -> Check:
    def act() -> tuple[bool, str]:
        found = tell()
        return found is None or is_new_enough(found), found or "not read: openocd, which tells it, is not installed"

    least = " or ".join(f"V{hardware}J{least}" for hardware, least in LEAST_FIRMWARE.items())
    todo = "update the ST-LINK with ST's STSW-LINK007; close other debuggers"
    return attempt("probe firmware", f"{least}, or newer", todo, act)


def console(link: DeviceLink, build_id: str) -> Check:
    def act() -> tuple[bool, str]:
        link.sync()
        answered = link.build_id()
        return answered == build_id, f"build {answered}"

    todo = "watch the board's light: 1 flash: clock, 2: memory, 3: console stuck; check port, cable and TX pin"
    return attempt("console", f"build {build_id} answers at {link.baud} baud", todo, act)


def chip(registers: Mapping[str, int], board: Board) -> Check:
    wanted = board.chip.device_id
    found = registers.get("DBGMCU_IDCODE", 0) & 0xFFF
    todo = f"this is another chip than {board.mcu}: choose the board's own description"
    return Check(
        "chip", f"device id {wanted:#x} ({board.mcu})", f"{found:#x}", found == wanted, _if(found != wanted, todo)
    )


def revision(registers: Mapping[str, int], board: Board) -> Check:
    found = registers.get("DBGMCU_IDCODE", 0) >> 16
    known = board.chip.revisions
    shown = ", ".join(f"{letter} ({number:#x})" for letter, number in known.items())
    ok = found in known.values()
    return Check("revision", f"one of {shown}", f"{found:#x}", ok, _if(not ok, TROUBLES["REV"]))


def flash_size(registers: Mapping[str, int], board: Board) -> Check:
    found, wanted = registers.get("FLASH_SIZE", 0), board.chip.flash_kib
    todo = "images may not fit: is it the variant of board.yaml?"
    return Check("flash size", f"{wanted} KiB", f"{found} KiB", found == wanted, _if(found != wanted, todo))


def option_bytes(registers: Mapping[str, int], board: Board) -> Check:
    rules = {name: rule for name, rule in board.chip.registers.items() if name in OPTION_REGISTERS}
    wrong = _wrong(registers, rules)
    todo = "set them back (STM32CubeProgrammer), or leave them: the model then takes flash_fill_cycles_dual_bank"
    expected = "; ".join(rule.means for rule in rules.values()) or "nothing special"
    return Check("option bytes", expected, wrong or "as delivered", not wrong, _if(bool(wrong), todo))


def clock(link: DeviceLink, board: Board, full_speed: bool) -> Check:
    def act() -> tuple[bool, str]:
        told = [match[1] for line in link.boot_lines if (match := re.match(r"m-\[trouble: (\w+)\]", line))]
        found = link.clock_hz()
        words = f"{found / 1e6:g} MHz" + "".join(f", {one}: {TROUBLES.get(one, one)}" for one in told)
        return (found == board.clock_hz or not full_speed) and not told, words

    expected = f"{board.clock_hz / 1e6:g} MHz" if full_speed else "the internal oscillator"
    return attempt("clock", expected, "see what was found; nothing is measured on another clock", act)


def clock_tree(registers: Mapping[str, int], board: Board) -> Check:
    rules = {
        name: rule
        for name, rule in board.chip.registers.items()
        if name not in (*OPTION_REGISTERS, *LAST_STAGE_REGISTERS)
    }
    wrong = _wrong(registers, rules)
    expected = "; ".join(rule.means for rule in rules.values())
    return Check(
        "clock tree", expected, wrong or "so it reads back", not wrong, _if(bool(wrong), "compare with board.yaml")
    )


def caches(registers: Mapping[str, int], board: Board) -> Check:
    rules = {name: board.chip.registers[name] for name in LAST_STAGE_REGISTERS}
    wrong = _wrong(registers, rules)
    return Check(
        "caches and MPU", "both are on", wrong or "so they read back", not wrong, _if(bool(wrong), "see start-up")
    )


def counter(registers: Mapping[str, int]) -> Check:
    found = registers.get("COUNTER_RESTARTS", 0)
    todo = (
        "a debugger stopped it (pyOCD writes DEMCR = 0 when it lets go): reset before measuring; disconnect debuggers"
    )
    return Check("cycle counter", "never stopped", f"started again {found} times", found == 0, _if(found != 0, todo))


def time_base(link: DeviceLink, host: HostClock, seconds: float = CLOCK_S) -> Check:
    def lap_us() -> int:
        return link.query("timestamp", lambda lines: int(single(lines, r"m-lap-us-([0-9]+)")[1]))

    def act() -> tuple[bool, str]:
        begun, first = host.now(), lap_us()
        host.sleep(seconds)
        elapsed_s, last = host.now() - begun, lap_us()
        share = (last - first) / 1e6 / elapsed_s - 1
        hint = "; within 1 %: a crystal of another frequency or a mistuned PLL" if abs(share) < 0.01 else ""
        return abs(
            share
        ) <= MOST_SHARE, f"device {100 * share:+.4f} % against the host{_if(abs(share) > MOST_SHARE, hint)}"

    todo = "TIM2 and the cycle counter share one PLL: check HSE_HZ of wiring.h against the oscillator on the board"
    return attempt("time", f"within {100 * MOST_SHARE:g} % of the host over {seconds:g} s", todo, act)


def link_rates(link: DeviceLink, rates: Sequence[int] = RATES) -> Check:
    pattern = bytes(range(7, 7 + 24))

    def act() -> tuple[bool, str]:
        worked = []
        for rate in rates:
            if rate != link.baud and not link.change_baud(rate):
                continue
            retries = link.retries
            link.load(pattern)
            if link.retries == retries:
                worked.append(rate)
        if link.baud != rates[0]:
            link.change_baud(rates[0])
        missing = [str(rate) for rate in rates if rate not in worked]
        return not missing, f"not at {', '.join(missing)} baud" if missing else "all of them"

    expected = f"bytes pass unharmed at {', '.join(map(str, rates))} baud"
    return attempt(
        "link rates", expected, "stay at a rate that works (--set measure.baud=), or change cable and hub", act
    )


def ram(link: DeviceLink) -> Check:
    def act() -> tuple[bool, str]:
        found = [_hex_fields(line, "m-ram", 4) for line in link.command("ram", 30.0)]
        wrong = [f"{count} words from {at:#010x} on" for _, _, count, at in found if count]
        total = sum(size for _, size, _, _ in found)
        return not wrong, "; ".join(wrong) or f"{total} B hold every pattern"

    return attempt(
        "ram", "every free word holds its address and the opposite", "the chip or its supply is damaged", act
    )


def flash(link: DeviceLink, expected: Expected) -> Check:
    def act() -> tuple[bool, str]:
        ((first, size, crc),) = [_hex_fields(line, "m-flash", 3) for line in link.command("flash", 30.0)]
        wanted = expected.flash_crc(first, size)
        return crc == wanted, f"{size} B with CRC {crc:08x}" + (
            "" if crc == wanted else f", the image has {wanted:08x}"
        )

    return attempt("flash", "code and constants read as in the image", "flash again with verification (openocd)", act)


def _hex_fields(line: str, head: str, count: int) -> list[int]:
    match = single((line,), rf"{head}-\[([0-9a-f]{{8}}(?:,[0-9a-f]{{8}}){{{count - 1}}})\]")
    return [int(word, 16) for word in match[1].split(",")]


def stack(link: DeviceLink, bound_bytes: int) -> Check:
    def act() -> tuple[bool, str]:
        use = link.memory()
        return 0 < use.stack_high_water_bytes <= bound_bytes, f"{use.stack_high_water_bytes} B of {use.stack_bytes} B"

    return attempt("stack", f"painted, used up to {bound_bytes} B", "stack_depth.py misses a call", act)


def network(link: DeviceLink, expected: Expected) -> Check:
    """Every operator of the trial network, bit for bit."""

    def act() -> tuple[bool, str]:
        host = run_graph(expected.graph, expected.inputs)
        for index, one in enumerate(expected.inputs):
            link.load(one.tobytes())
            for number, kernel in enumerate(expected.kernels):
                wanted = host[expected.graph.ops[kernel["ops"][-1]].outputs[0]][index].tobytes()
                if link.tensor_crc(number).crc != zlib.crc32(wanted):
                    return (
                        False,
                        f"operator {number} ({kernel['kind']}, kernel {kernel['kernel']}) differs, input {index}",
                    )
        names = ", ".join(dict.fromkeys(kernel["kernel"] for kernel in expected.kernels))
        return True, f"{len(expected.kernels)} operators bit-identical for {len(expected.inputs)} inputs: {names}"

    return attempt("network", "each kernel computes what TensorFlow Lite Micro does", "do not trust this board", act)


def restart(link: DeviceLink) -> Check:
    def act() -> tuple[bool, str]:
        link.restart()
        return "m-init-done" in link.boot_lines, "it started anew" if link.boot_lines else "no boot message"

    return attempt("reset", "`reset%` ends in a boot message", "press the reset button; is SYSRESETREQ masked?", act)


def fault(link: DeviceLink) -> Check:
    def act() -> tuple[bool, str]:
        lines = told_until_boot(link, "fault", 5.0)
        report = next((line for line in lines if line.startswith("e-[Fault:")), "")
        back = "m-init-done" in lines
        return "CFSR=00010000" in report and back, f"{report or 'no fault line'}, {'back' if back else 'not back'}"

    return attempt("fault", "a provoked fault is told and the board comes back", "check vector table and MPU", act)


def watchdog(link: DeviceLink, wait_s: float = WATCHDOG_S) -> Check:
    def act() -> tuple[bool, str]:
        lines = told_until_boot(link, "hang", wait_s)
        return "m-[reset by watchdog]" in lines, "it reset the board" if lines else f"nothing within {wait_s:g} s"

    return attempt(
        "watchdog", f"a hang ends within {wait_s:g} s", "does the LSI run; is DBGMCU freezing the IWDG?", act
    )


def told_until_boot(link: DeviceLink, command: str, wait_s: float) -> tuple[str, ...]:
    """What the device says from a command on that ends in a restart."""
    return link.told_until_boot(command, wait_s)


def _wrong(registers: Mapping[str, int], rules: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name} is {registers.get(name, 0):#010x}, needed {rule.value:#x} in {rule.mask:#x} ({rule.means})"
        for name, rule in rules.items()
        if registers.get(name, 0) & rule.mask != rule.value
    )


def _if(condition: bool, text: str) -> str:
    return text if condition else ""
