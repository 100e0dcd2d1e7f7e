"""The registers of an STM32 that the start-up code may touch, for a boot in unicorn.

An access to any other address of the peripheral space is recorded and fails the test. Bits that hardware sets in answer
to a request (a clock is ready, a voltage is reached) are set at once. From what was written, the clocks follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from unicorn import UC_ARCH_ARM, UC_MODE_MCLASS, UC_MODE_THUMB, Uc
from unicorn.arm_const import UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M7

HSE_HZ = 8_000_000
FLASH_ORIGIN = 0x08000000
STOP_AFTER = b"m-ready\r\n"

CORE = {
    0xE0001000: "DWT_CTRL",
    0xE0001004: "DWT_CYCCNT",
    0xE0001FB0: "DWT_LAR",
    0xE000ED08: "SCB_VTOR",
    0xE000ED14: "SCB_CCR",
    0xE000ED80: "SCB_CCSIDR",
    0xE000ED84: "SCB_CSSELR",
    0xE000ED88: "SCB_CPACR",
    0xE000EDFC: "SCB_DEMCR",
    0xE000EF50: "SCB_ICIALLU",
    0xE000EF60: "SCB_DCISW",
}
USART3 = {
    0x40004800: "USART3_CR1",
    0x4000480C: "USART3_BRR",
    0x4000481C: "USART3_ISR",
    0x40004820: "USART3_ICR",
    0x40004824: "USART3_RDR",
    0x40004828: "USART3_TDR",
}
F767 = {
    0x40023800: "RCC_CR",
    0x40023804: "RCC_PLLCFGR",
    0x40023808: "RCC_CFGR",
    0x40023830: "RCC_AHB1ENR",
    0x40023840: "RCC_APB1ENR",
    0x40007000: "PWR_CR1",
    0x40007004: "PWR_CSR1",
    0x40023C00: "FLASH_ACR",
    0x40020C00: "GPIOD_MODER",
    0x40020C0C: "GPIOD_PUPDR",
    0x40020C24: "GPIOD_AFRH",
}
H743 = {
    0x58024400: "RCC_CR",
    0x58024410: "RCC_CFGR",
    0x58024418: "RCC_D1CFGR",
    0x5802441C: "RCC_D2CFGR",
    0x58024420: "RCC_D3CFGR",
    0x58024428: "RCC_PLLCKSELR",
    0x5802442C: "RCC_PLLCFGR",
    0x58024430: "RCC_PLL1DIVR",
    0x580244E0: "RCC_AHB4ENR",
    0x580244E8: "RCC_APB1LENR",
    0x580244F4: "RCC_APB4ENR",
    0x58024804: "PWR_CSR1",
    0x5802480C: "PWR_CR3",
    0x58024818: "PWR_D3CR",
    0x5800042C: "SYSCFG_PWRCR",
    0x52002000: "FLASH_ACR",
    0x58020C00: "GPIOD_MODER",
    0x58020C0C: "GPIOD_PUPDR",
    0x58020C24: "GPIOD_AFRH",
}
BIT = [1 << n for n in range(32)]


def _f767_answers(name: str, value: int, written: dict[str, int]) -> int:
    if name == "PWR_CSR1":  # ODRDY, ODSWRDY follow ODEN, ODSWEN
        return written.get("PWR_CR1", 0) & (BIT[16] | BIT[17])
    if name == "RCC_CFGR":  # SWS follows SW
        return value & ~0xC | (value & 3) << 2
    return value


def _h743_answers(name: str, value: int, _written: dict[str, int]) -> int:
    if name in ("PWR_CSR1", "PWR_D3CR"):  # ACTVOSRDY, VOSRDY
        return value | BIT[13]
    if name == "RCC_CFGR":
        return value & ~0x38 | (value & 7) << 3
    return value


def _f767_clocks(reg: dict[str, int]) -> tuple[int, int]:
    """Core and USART3 clock (RM0410, RCC_PLLCFGR and RCC_CFGR)."""
    pll = reg["RCC_PLLCFGR"]
    assert pll & BIT[22], "the PLL runs from HSE"
    core = HSE_HZ // (pll & 0x3F) * (pll >> 6 & 0x1FF) // (2 * (pll >> 16 & 3) + 2)
    assert reg["RCC_CFGR"] & 3 == 2, "the core runs from the PLL"
    assert reg["RCC_CFGR"] >> 4 & 0xF < 8, "AHB is not divided"
    apb1 = reg["RCC_CFGR"] >> 10 & 7
    return core, core >> (apb1 - 3 if apb1 >= 4 else 0)


def _h743_clocks(reg: dict[str, int]) -> tuple[int, int]:
    """Core and USART3 clock (RM0433, RCC_PLL1DIVR, RCC_D1CFGR and RCC_D2CFGR)."""
    assert reg["RCC_PLLCKSELR"] & 3 == 2, "the PLL runs from HSE"
    assert reg["RCC_PLLCFGR"] & BIT[16], "output P is on"
    divr = reg["RCC_PLL1DIVR"]
    core = HSE_HZ // (reg["RCC_PLLCKSELR"] >> 4 & 0x3F) * ((divr & 0x1FF) + 1) // ((divr >> 9 & 0x7F) + 1)
    assert reg["RCC_CFGR"] & 7 == 3, "the core runs from PLL1"
    assert reg["RCC_D1CFGR"] >> 8 & 0xF < 8, "the core clock is not divided"
    ahb = reg["RCC_D1CFGR"] & 0xF
    apb1 = reg["RCC_D2CFGR"] >> 4 & 7
    return core, core >> (ahb - 7 if ahb >= 8 else 0) >> (apb1 - 3 if apb1 >= 4 else 0)


@dataclass(frozen=True)
class Chip:
    """What differs between the two families."""

    registers: dict[int, str]
    ram: tuple[tuple[int, int], ...]
    answers: Callable[[str, int, dict[str, int]], int]
    clocks: Callable[[dict[str, int]], tuple[int, int]]


CHIPS = {
    "nucleo_f767zi": Chip(F767, ((0x20000000, 0x80000),), _f767_answers, _f767_clocks),
    "nucleo_h743zi2": Chip(H743, ((0x20000000, 0x20000), (0x24000000, 0x80000)), _h743_answers, _h743_clocks),
}


@dataclass
class Boot:
    """What happened until `m-ready` or the limit."""

    sent: bytearray = field(default_factory=bytearray)
    written: dict[str, int] = field(default_factory=dict)
    order: list[tuple[str, int]] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    cycles: int = 0


def boot(image: Path, chip: Chip, limit_instructions: int = 2_000_000) -> Boot:
    """Run an image from its reset vector."""
    machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
    machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M7)
    known = {**CORE, **USART3, **chip.registers}
    seen = Boot()

    def read(base: int) -> Callable[..., int]:
        def answer(_: Uc, offset: int, size: int, __: object) -> int:
            name = known.get(base + offset)
            if name is None or size != 4:
                seen.stray.append(f"read of {size} at {base + offset:#x}")
                return 0
            return _value(name)

        return answer

    def _value(name: str) -> int:
        value = seen.written.get(name, 0)
        if name == "USART3_ISR":
            return BIT[7] | BIT[6]  # TXE and TC, nothing received
        if name == "SCB_CCSIDR":
            return 127 << 13 | 3 << 3 | 1  # 16 KB data cache: 128 sets, 4 ways, 32-byte lines
        if name == "DWT_CYCCNT":
            seen.cycles += 1000
            return seen.cycles
        if name == "RCC_CR":  # HSERDY, PLLRDY follow HSEON, PLLON
            return value | (value & (BIT[16] | BIT[24])) << 1
        return chip.answers(name, value, seen.written)

    def write(base: int) -> Callable[..., None]:
        def take(uc: Uc, offset: int, size: int, value: int, _: object) -> None:
            name = known.get(base + offset)
            if name is None or size != 4:
                seen.stray.append(f"write of {size} at {base + offset:#x}")
                return
            if name == "USART3_TDR":
                seen.sent.append(value & 0xFF)
                if seen.sent.endswith(STOP_AFTER):
                    uc.emu_stop()
                return
            seen.written[name] = value
            seen.order.append((name, value))

        return take

    machine.mem_map(FLASH_ORIGIN, 2 << 20)
    for origin, size in chip.ram:
        machine.mem_map(origin, size)
    for origin, size in ((0x40000000, 1 << 20), (0x52000000, 1 << 16), (0x58000000, 1 << 20), (0xE0000000, 1 << 16)):
        machine.mmio_map(origin, size, read(origin), None, write(origin), None)
    with image.open("rb") as file:
        for segment in ELFFile(file).iter_segments():
            if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]:
                machine.mem_write(segment["p_paddr"], segment.data())
    stack, entry = (int.from_bytes(machine.mem_read(FLASH_ORIGIN + 4 * i, 4), "little") for i in (0, 1))
    machine.reg_write(UC_ARM_REG_SP, stack)
    machine.emu_start(entry | 1, 0xFFFFFFFF, count=limit_instructions)
    return seen
