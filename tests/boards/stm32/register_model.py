"""The registers of an STM32 that the firmware may touch, for running a board's image in unicorn.

An access to any other address of the peripheral space is recorded, and so is one to a peripheral whose clock is off.
Bits that hardware sets in answer to a request (a clock is ready, a voltage is reached) are set at once. From what was
written, the clocks follow; until the core is switched over, its internal oscillator drives everything. `Silicon` says
what is unlike the data sheet: an oscillator that is dead, another revision, a USART that sends nothing. Which pins and
which USART are allowed comes from board.yaml, so that it and wiring.h must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boards import Board

FLASH_ORIGIN = 0x08000000
BIT = [1 << n for n in range(32)]

CORE = {
    0xE0001000: "DWT_CTRL",
    0xE0001004: "DWT_CYCCNT",
    0xE0001FB0: "DWT_LAR",
    0xE000E010: "SYST_CSR",
    0xE000E014: "SYST_RVR",
    0xE000E018: "SYST_CVR",
    0xE000E100: "NVIC_ISER0",
    0xE000E104: "NVIC_ISER1",
    0xE000ED00: "CPUID",
    0xE000ED08: "SCB_VTOR",
    0xE000ED0C: "SCB_AIRCR",
    0xE000ED14: "SCB_CCR",
    0xE000ED28: "SCB_CFSR",
    0xE000ED2C: "SCB_HFSR",
    0xE000ED34: "SCB_MMFAR",
    0xE000ED38: "SCB_BFAR",
    0xE000ED80: "SCB_CCSIDR",
    0xE000ED84: "SCB_CSSELR",
    0xE000ED88: "SCB_CPACR",
    0xE000ED90: "MPU_TYPE",
    0xE000ED94: "MPU_CTRL",
    0xE000ED98: "MPU_RNR",
    0xE000ED9C: "MPU_RBAR",
    0xE000EDA0: "MPU_RASR",
    0xE000EDFC: "SCB_DEMCR",
    0xE000EF50: "SCB_ICIALLU",
    0xE000EF60: "SCB_DCISW",
}
TIM2 = {0x40000000: "TIM2_CR1", 0x40000014: "TIM2_EGR", 0x40000024: "TIM2_CNT", 0x40000028: "TIM2_PSC"}
TIM2[0x4000002C] = "TIM2_ARR"
F7 = {
    0x40023800: "RCC_CR",
    0x40023804: "RCC_PLLCFGR",
    0x40023808: "RCC_CFGR",
    0x40023830: "RCC_AHB1ENR",
    0x40023840: "RCC_APB1ENR",
    0x40023844: "RCC_APB2ENR",
    0x40023874: "RESET_CAUSE",
    0x40007000: "PWR_CR1",
    0x40007004: "PWR_CSR1",
    0x40023C00: "FLASH_ACR",
    0x40023C14: "FLASH_OPTCR",
    0x40023C18: "FLASH_OPTCR1",
    0x1FF0F440: "FLASH_SIZE",
    0xE0042000: "DBGMCU_IDCODE",
    0xE0042008: "DEBUG_FREEZE",
}
H7 = {
    0x58024400: "RCC_CR",
    0x58024410: "RCC_CFGR",
    0x58024418: "RCC_D1CFGR",
    0x5802441C: "RCC_D2CFGR",
    0x58024420: "RCC_D3CFGR",
    0x58024428: "RCC_PLLCKSELR",
    0x5802442C: "RCC_PLLCFGR",
    0x58024430: "RCC_PLL1DIVR",
    0x580244D0: "RESET_CAUSE",
    0x580244E0: "RCC_AHB4ENR",
    0x580244E8: "RCC_APB1LENR",
    0x580244F4: "RCC_APB4ENR",
    0x58024804: "PWR_CSR1",
    0x5802480C: "PWR_CR3",
    0x58024818: "PWR_D3CR",
    0x5800042C: "SYSCFG_PWRCR",
    0x52002000: "FLASH_ACR",
    0x5200201C: "FLASH_OPTSR",
    0x1FF1E880: "FLASH_SIZE",
    0x5C001000: "DBGMCU_IDCODE",
    0x5C001054: "DEBUG_FREEZE",
}
USART = {0x00: "CR1", 0x0C: "BRR", 0x1C: "ISR", 0x20: "ICR", 0x24: "RDR", 0x28: "TDR"}
USART_BASES = {"USART1": 0x40011000, "USART3": 0x40004800}
INTERRUPTS = {"USART1": 37, "USART3": 39}
GPIO = {0x00: "MODER", 0x0C: "PUPDR", 0x18: "BSRR", 0x20: "AFRL", 0x24: "AFRH"}
IWDG = {0x00: "KR", 0x04: "PR", 0x08: "RLR", 0x0C: "SR"}

Registers = dict[str, int]


@dataclass(frozen=True)
class Silicon:
    """One chip on one board, and what is wrong with it."""

    hse_starts: bool = True
    pll_locks: bool = True
    voltage_is_reached: bool = True  # over-drive (F7), VOS (H7)
    usart_sends: bool = True  # False: TXE and TC never come
    device_id: int | None = None  # None: the described one
    revision: int | None = None  # None: the newest described one
    flash_kib: int | None = None
    option_bytes: int | None = None  # FLASH_OPTCR (F7) or FLASH_OPTSR (H7)
    hse_error: float = 0.0  # share by which the oscillator is off
    most_baud: int = 10_000_000  # above it the line turns bytes into others
    watchdog_bites: bool = True
    restarts_on_request: bool = True
    stuck_ram: int | None = None  # address of a word whose lowest bit is stuck at one
    stuck_flash: int | None = None  # the same in the image


@dataclass(frozen=True)
class Clocks:
    """What the written registers make of the oscillator."""

    core_hz: int
    console_hz: int
    timer_hz: int


def _f7_answers(name: str, value: int, written: Registers, silicon: Silicon) -> int:
    if name == "PWR_CSR1":  # ODRDY, ODSWRDY follow ODEN, ODSWEN
        return written.get("PWR_CR1", 0) & (BIT[16] | BIT[17]) if silicon.voltage_is_reached else 0
    if name == "RCC_CFGR":  # SWS follows SW
        return value & ~0xC | (value & 3) << 2
    return value


def _h7_answers(name: str, value: int, _written: Registers, silicon: Silicon) -> int:
    if name in ("PWR_CSR1", "PWR_D3CR"):  # ACTVOSRDY, VOSRDY
        return value | (BIT[13] if name == "PWR_CSR1" or silicon.voltage_is_reached else 0)
    if name == "RCC_CFGR":
        return value & ~0x38 | (value & 7) << 3
    return value


def _f7_clocks(reg: Registers, hse_hz: int, uart: str) -> Clocks:
    """RM0385 and RM0410: RCC_PLLCFGR, RCC_CFGR; timers of a divided APB run at twice its clock."""
    if reg.get("RCC_CFGR", 0) & 3 == 0:
        return Clocks(16_000_000, 16_000_000, 16_000_000)
    pll = reg["RCC_PLLCFGR"]
    assert pll & BIT[22], "the PLL runs from HSE"
    vco_in_hz = hse_hz / (pll & 0x3F)
    assert 1e6 <= vco_in_hz <= 2e6, "the PLL's input is in its range"
    vco_hz = vco_in_hz * (pll >> 6 & 0x1FF)
    assert 100e6 <= vco_hz <= 432e6, "the VCO is in its range"
    assert reg["RCC_CFGR"] & 3 == 2, "the core runs from the PLL"
    assert reg["RCC_CFGR"] >> 4 & 0xF < 8, "AHB is not divided"
    core = int(vco_hz) // (2 * (pll >> 16 & 3) + 2)
    apb1, apb2 = (core >> max(0, (reg["RCC_CFGR"] >> shift & 7) - 3) for shift in (10, 13))
    assert apb1 <= 54_000_000 and apb2 <= 108_000_000, "no bus runs too fast"
    return Clocks(core, apb2 if uart == "USART1" else apb1, 2 * apb1)


def _h7_clocks(reg: Registers, hse_hz: int, uart: str) -> Clocks:
    """RM0433: RCC_PLL1DIVR, RCC_D1CFGR and RCC_D2CFGR."""
    if reg.get("RCC_CFGR", 0) & 7 == 0:
        return Clocks(64_000_000, 64_000_000, 64_000_000)
    assert uart == "USART3"
    assert reg["RCC_PLLCKSELR"] & 3 == 2, "the PLL runs from HSE"
    assert reg["RCC_PLLCFGR"] & BIT[16], "output P is on"
    vco_in_hz = hse_hz // (reg["RCC_PLLCKSELR"] >> 4 & 0x3F)
    assert reg["RCC_PLLCFGR"] >> 2 & 3 == 1 and 2e6 <= vco_in_hz <= 4e6, "PLL1RGE names the range of its input"
    divr = reg["RCC_PLL1DIVR"]
    core = vco_in_hz * ((divr & 0x1FF) + 1) // ((divr >> 9 & 0x7F) + 1)
    assert reg["RCC_CFGR"] & 7 == 3, "the core runs from PLL1"
    assert reg["RCC_D1CFGR"] >> 8 & 0xF < 8, "the core clock is not divided"
    ahb = core >> max(0, (reg["RCC_D1CFGR"] & 0xF) - 7)
    apb1_code = reg["RCC_D2CFGR"] >> 4 & 7
    apb1 = ahb >> max(0, apb1_code - 3)
    assert ahb <= 240_000_000 and apb1 <= 120_000_000, "no bus runs too fast"
    return Clocks(core, apb1, ahb if apb1_code <= 4 else 2 * apb1)


@dataclass(frozen=True)
class Family:
    """What differs between the two families."""

    registers: dict[int, str]
    gpio_base: int
    gpio_enable: str
    iwdg_base: int
    gates: dict[str, tuple[str, int]]  # peripheral -> enable register and bit
    answers: Callable[[str, int, Registers, Silicon], int]
    clocks: Callable[[Registers, int, str], Clocks]
    latency: int  # wait states at full speed
    switched: tuple[int, int]  # RCC_CFGR: mask, value
    watchdog_bit: int  # of RESET_CAUSE
    flash_size_shift: int
    options: tuple[str, int]  # register of the option bytes, and as the factory sets them
    reset_values: Registers  # of registers that are not 0 after reset


FAMILIES = {
    "STM32F7": Family(
        registers=F7,
        gpio_base=0x40020000,
        gpio_enable="RCC_AHB1ENR",
        iwdg_base=0x40003000,
        gates={
            "TIM2": ("RCC_APB1ENR", 0),
            "USART1": ("RCC_APB2ENR", 4),
            "USART3": ("RCC_APB1ENR", 18),
            "PWR": ("RCC_APB1ENR", 28),
        },
        answers=_f7_answers,
        clocks=_f7_clocks,
        latency=7,
        switched=(3, 2),
        watchdog_bit=29,
        flash_size_shift=16,
        options=("FLASH_OPTCR", 0xFFFFAAFD),
        reset_values={"RCC_CR": 0x83, "RCC_PLLCFGR": 0x24003010, "PWR_CR1": 0xC000},
    ),
    "STM32H7": Family(
        registers=H7,
        gpio_base=0x58020000,
        gpio_enable="RCC_AHB4ENR",
        iwdg_base=0x58004800,
        gates={"TIM2": ("RCC_APB1LENR", 0), "USART3": ("RCC_APB1LENR", 18), "SYSCFG": ("RCC_APB4ENR", 1)},
        answers=_h7_answers,
        clocks=_h7_clocks,
        latency=4,
        switched=(7, 3),
        watchdog_bit=26,
        flash_size_shift=0,
        options=("FLASH_OPTSR", 0x1BC6AAF0),
        reset_values={"RCC_CR": 0x83, "RCC_PLLCFGR": 0x01FF0000, "PWR_D3CR": 0x4000, "PWR_CR3": 0x6},
    ),
}
HSE_HZ = {"nucleo_f767zi": 8_000_000, "nucleo_h743zi2": 8_000_000, "disco_f746ng": 25_000_000}
OPTION_BYTES = {"disco_f746ng": 0xC0FFAAFD}  # where the family's are others: the F74x has no nDBANK, the bit reads 0
HSE_FROM_STLINK = {"nucleo_f767zi": True, "nucleo_h743zi2": True, "disco_f746ng": False}


def family_of(board: Board) -> Family:
    return FAMILIES[board.mcu[:7]]


def allowed_registers(board: Board) -> dict[int, str]:
    """Address to name, for everything this board's firmware has to do with."""
    family = family_of(board)
    known = {**CORE, **TIM2, **family.registers}
    known |= {
        USART_BASES[board.console.uart] + offset: f"{board.console.uart}_{name}" for offset, name in USART.items()
    }
    known |= {family.iwdg_base + offset: f"IWDG_{name}" for offset, name in IWDG.items()}
    for pin in (board.console.tx, board.console.rx, board.timestamp_pin, board.light_pin):
        port = pin[1]
        base = family.gpio_base + 0x400 * (ord(port) - ord("A"))
        known |= {base + offset: f"GPIO{port}_{name}" for offset, name in GPIO.items()}
    return known


def gate_of(register: str, family: Family) -> tuple[str, int] | None:
    """The enable register and bit of the clock that this register needs; None for what always runs."""
    if register.startswith("GPIO"):
        return family.gpio_enable, ord(register[4]) - ord("A")
    return family.gates.get(register.partition("_")[0])


def pin_field(written: Registers, pin: str, register: str, bits: int) -> int:
    """What was written for one pin."""
    number = int(pin[2:])
    return written[f"GPIO{pin[1]}_{register}"] >> bits * (number % (32 // bits)) & (1 << bits) - 1


def alternate_function(written: Registers, pin: str) -> int:
    return pin_field(written, pin, "AFRH" if int(pin[2:]) >= 8 else "AFRL", 4)
