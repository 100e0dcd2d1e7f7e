"""A board's own image running in unicorn on the register model: from reset to `m-ready`, and on, byte by byte.

unicorn has neither NVIC nor MPU, and no exceptions. An interrupt is made here as the core makes it: the handler that
the vector table names is run between two instructions, provided that USART and NVIC have it enabled. A fault enters
HardFault with its frame on the stack. And every access to memory is held against the MPU regions that were written, by
the rules of PMSAv7 (DDI 0403, B3.5), unless `checked` is off, which is much faster.

Time is counted in core cycles and moves when a counter is read, when a millisecond of SysTick is waited for, and when a
test says so. The watchdog bites when the image runs for long without feeding it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from unicorn import (
    UC_ARCH_ARM,
    UC_HOOK_BLOCK,
    UC_HOOK_INTR,
    UC_HOOK_MEM_READ,
    UC_HOOK_MEM_WRITE,
    UC_MEM_WRITE,
    UC_MODE_MCLASS,
    UC_MODE_THUMB,
    Uc,
    UcError,
)
from unicorn.arm_const import (
    UC_ARM_REG_LR,
    UC_ARM_REG_PC,
    UC_ARM_REG_R0,
    UC_ARM_REG_R1,
    UC_ARM_REG_R2,
    UC_ARM_REG_R3,
    UC_ARM_REG_R12,
    UC_ARM_REG_SP,
    UC_ARM_REG_XPSR,
    UC_CPU_ARM_CORTEX_M7,
)

from boards import Board
from tests.boards.stm32.clocked import Counters
from tests.boards.stm32.register_model import (
    BIT,
    FLASH_ORIGIN,
    HSE_HZ,
    INTERRUPTS,
    OPTION_BYTES,
    Clocks,
    Silicon,
    allowed_registers,
    family_of,
    gate_of,
)

READY = b"m-ready\r\n"
PERIPHERALS = (
    *((0x40000000, 1 << 20), (0x52000000, 1 << 16), (0x58000000, 1 << 20), (0x5C000000, 1 << 16)),
    (0x1FF00000, 1 << 17),  # system memory: the chip's signature
)
CORE_SPACE = (0xE0000000, 1 << 20)
FRAME = (UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R12, UC_ARM_REG_LR)
MPU_REGIONS = 8
MOST_INSTRUCTIONS = 20_000_000  # without a look at the serial line: a hang
RESET_REQUEST = 0x05FA0004


@dataclass(frozen=True)
class MpuRegion:
    """One region as the core understands MPU_RBAR and MPU_RASR."""

    base: int
    size: int
    executable: bool
    access: int  # AP
    kind: int  # TEX, S, C, B: bits 21 to 16
    eighths_off: int

    def covers(self, address: int) -> bool:
        inside = self.base <= address < self.base + self.size
        return inside and not self.eighths_off >> ((address - self.base) * 8 // self.size) & 1

    def allows(self, use: str) -> bool:
        readable, writable = self.access in (1, 2, 3, 5, 6), self.access in (1, 2, 3)
        return {"read": readable, "write": writable, "execute": readable and self.executable}[use]


def decoded_region(rbar: int, rasr: int) -> MpuRegion:
    size = 1 << (rasr >> 1 & 0x1F) + 1
    assert rbar % size == 0, "a region lies on a multiple of its size"
    return MpuRegion(rbar, size, not rasr & BIT[28], rasr >> 24 & 7, rasr >> 16 & 0x3F, rasr >> 8 & 0xFF)


@dataclass
class Usart:
    """What the host's side of the wire does."""

    arrived: list[tuple[int, int]] = field(default_factory=list)  # byte and error flags of ISR
    overrun: bool = False
    sent: bytearray = field(default_factory=bytearray)


class EmulatedBoard:
    """Boots in the constructor."""

    def __init__(
        self,
        image: Path,
        board: Board,
        *,
        reset_cause: int = 0,
        silicon: Silicon | None = None,
        checked: bool = True,
        poked: dict[int, bytes] | None = None,
    ) -> None:
        self.board, self.family, self.silicon = board, family_of(board), silicon or Silicon()
        self.known = allowed_registers(board)
        self.stray: list[str] = []
        self.forbidden: list[str] = []  # accesses that the MPU would have refused
        self.order: list[tuple[str, int]] = []
        self.touched: list[tuple[str, str]] = []  # reads and writes of what sets up clocks and power
        self.usart = Usart()
        self.counters = Counters()
        self.edges: list[tuple[str, int]] = []  # of the timestamp pin: which, and the cycle
        self.stops_counter_at_fall = False  # a debugger lets go while the pin is low
        self.flashes = 0  # of the light
        self.resets = 0
        self.was_reset = False
        self._waiting = 0  # bytes in the ring that the main loop has not taken yet
        self._fault: tuple[int, int] | None = None  # CFSR and address of an access that failed
        self._machine = self._built(image, checked)
        for address, data in (poked or {}).items():
            self._machine.mem_write(address, data)
        self._from_reset(reset_cause)
        self.run()

    @property
    def sent(self) -> bytes:
        return bytes(self.usart.sent)

    @property
    def cycles(self) -> int:
        return self.counters.cycles

    @cycles.setter
    def cycles(self, value: int) -> None:
        self.counters.cycles = value

    def ask(self, command: bytes) -> bytes:
        """Send a command through the interrupt and return what came back, `m-ready` included."""
        already = len(self.usart.sent)
        for byte in command:
            self.receive(byte)
            self.run()
        return self.sent[already:]

    def receive(self, byte: int, *, flags: int = 0, overrun: bool = False) -> None:
        """A byte arrives, and the interrupt is taken."""
        self.usart.arrived.append((byte, flags))
        self.usart.overrun = overrun
        self._waiting += 1
        self._interrupt()
        assert not self.usart.arrived, "the handler left the byte where it was"

    def debugger_lets_go(self) -> None:
        """What pyOCD does on disconnect (its issue 1540): DEMCR = 0, with the DWT running or not."""
        self._take("SCB_DEMCR", 0)

    def restart(self, reset_cause: int = 0) -> None:
        """As after a reset: registers forget, memory does not."""
        self._from_reset(reset_cause)
        self.run()

    def run(self) -> None:
        """Until the main loop waits for a byte again, through every fault and reset on the way."""
        fed = self._count("IWDG_KR")
        while True:
            self._idle_hits, self.was_reset = -max(1, self._waiting), False
            self._waiting = 0
            ended = self._executed()
            if self.was_reset:
                self.resets += 1
                if not self.silicon.restarts_on_request:
                    return
                self._from_reset(0)
            elif ended == "idle":
                return
            elif ended == "hang":
                if not self.silicon.watchdog_bites or self._count("IWDG_KR") == 0:
                    return
                self.resets += 1
                self._from_reset(BIT[self.family.watchdog_bit])
            assert self.resets < 8, f"it resets for ever; fed {self._count('IWDG_KR') - fed} times"

    def clocks(self) -> Clocks:
        hse_hz = round(HSE_HZ[self.board.name])
        return self.family.clocks(self.written, hse_hz, self.board.console.uart)

    def baud(self) -> float:
        return self.clocks().console_hz / self.written[f"{self.board.console.uart}_BRR"]

    def mpu_allows(self, address: int, use: str) -> bool:
        """As the core decides: the highest region that covers the address; none means no access."""
        for _, region in sorted(self.regions.items(), reverse=True):
            if region.covers(address):
                return region.allows(use)
        return False

    def _from_reset(self, cause: int) -> None:
        self.written: dict[str, int] = {**self.family.reset_values, "RESET_CAUSE": cause}
        self.regions: dict[int, MpuRegion] = {}
        self.counters.reset()
        stack, entry = (int.from_bytes(self._machine.mem_read(FLASH_ORIGIN + 4 * i, 4), "little") for i in (0, 1))
        self._machine.reg_write(UC_ARM_REG_SP, stack)
        self._machine.reg_write(UC_ARM_REG_PC, entry)

    def _executed(self) -> str:
        while True:
            try:
                pc = self._machine.reg_read(UC_ARM_REG_PC)
                self._machine.emu_start(pc | 1, 0xFFFFFFFF, count=MOST_INSTRUCTIONS)
            except UcError:
                self._fault = self._fault or (0x00010000, 0)
            if self._fault is not None:
                self._enter_fault(*self._fault)
                self._fault = None
                continue
            return "idle" if self._idle_hits >= 1 or self.was_reset else "hang"

    def _enter_fault(self, cfsr: int, address: int) -> None:
        """DDI 0403, B1.5.6: the frame goes onto the stack, HardFault runs; every other fault escalates to it."""
        pc = self._machine.reg_read(UC_ARM_REG_PC)
        words = [*(self._machine.reg_read(register) for register in FRAME), pc, 1 << 24]
        sp = self._machine.reg_read(UC_ARM_REG_SP) - 32
        self._machine.mem_write(sp, b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in words))
        self._machine.reg_write(UC_ARM_REG_SP, sp)
        self.written |= {"SCB_CFSR": cfsr, "SCB_HFSR": BIT[30], "SCB_MMFAR": address, "SCB_BFAR": address}
        handler = int.from_bytes(self._machine.mem_read(self.written["SCB_VTOR"] + 12, 4), "little")
        self._machine.reg_write(UC_ARM_REG_XPSR, 1 << 24)
        self._machine.reg_write(UC_ARM_REG_PC, handler)

    def _interrupt(self) -> None:
        uart = self.board.console.uart
        number = INTERRUPTS[uart]
        assert self.written[f"{uart}_CR1"] & (BIT[0] | BIT[5]) == BIT[0] | BIT[5], "UE and RXNEIE are on"
        assert self.written[f"NVIC_ISER{number // 32}"] & BIT[number % 32], "the interrupt is enabled"
        vector = self.written["SCB_VTOR"] + 4 * (16 + number)
        handler = int.from_bytes(self._machine.mem_read(vector, 4), "little")
        before = self._machine.context_save()
        back = FLASH_ORIGIN + self.board.memories["flash"].size - 16
        self._machine.reg_write(UC_ARM_REG_SP, self._machine.reg_read(UC_ARM_REG_SP) - 32)
        self._machine.reg_write(UC_ARM_REG_LR, back | 1)
        self._machine.emu_start(handler, back, count=1000)
        assert self._machine.reg_read(UC_ARM_REG_PC) == back, "the handler returned"
        self._machine.context_restore(before)

    def _built(self, image: Path, checked: bool) -> Uc:
        machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M7)
        for memory in self.board.memories.values():
            machine.mem_map(memory.origin, memory.size)
        for origin, size in (*PERIPHERALS, CORE_SPACE):
            machine.mmio_map(origin, size, self._reader(origin), None, self._writer(origin), None)
        with image.open("rb") as file:
            elf = ELFFile(file)
            for segment in elf.iter_segments():
                if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]:
                    machine.mem_write(segment["p_paddr"], segment.data())
            (take,) = elf.get_section_by_name(".symtab").get_symbol_by_name("board_take")
        idle = take["st_value"] & ~1
        if checked:
            machine.hook_add(UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, self._on_data)
            machine.hook_add(UC_HOOK_BLOCK, self._on_block)
        elif self.silicon.stuck_ram is not None:
            machine.hook_add(
                UC_HOOK_MEM_READ, self._on_stuck, begin=self.silicon.stuck_ram, end=self.silicon.stuck_ram + 3
            )
        machine.hook_add(UC_HOOK_INTR, self._on_exception)
        machine.hook_add(UC_HOOK_BLOCK, self._on_idle, begin=idle, end=idle)
        return machine

    def _on_exception(self, uc: Uc, _number: int, __: object) -> None:
        self._fault = (0x00010000, 0)  # UNDEFINSTR
        uc.emu_stop()

    def _on_stuck(self, uc: Uc, _: int, address: int, size: int, __: int, ___: object) -> None:
        word = int.from_bytes(uc.mem_read(address, size), "little") | 1
        uc.mem_write(address, word.to_bytes(size, "little"))

    def _on_data(self, uc: Uc, kind: int, address: int, size: int, __: int, ___: object) -> None:
        if address < CORE_SPACE[0]:
            self._check(address, size, "write" if kind == UC_MEM_WRITE else "read")

    def _on_block(self, _: Uc, address: int, size: int, __: object) -> None:
        self._check(address, size, "execute")

    def _on_idle(self, uc: Uc, _: int, __: int, ___: object) -> None:
        self._idle_hits += 1
        if self._idle_hits >= 1:
            uc.emu_stop()

    def _check(self, address: int, size: int, use: str) -> None:
        if self.written.get("MPU_CTRL", 0) & 1:
            for end in (address, address + size - 1):
                if not self.mpu_allows(end, use):
                    self.forbidden.append(f"{use} of {size} at {address:#x}")

    def _count(self, register: str) -> int:
        return sum(name == register for name, _ in self.order)

    def _reader(self, base: int) -> Callable[..., int]:
        def answer(_: Uc, offset: int, size: int, __: object) -> int:
            name = self._named(base + offset, size, "read")
            return self._value(name) if name else 0

        return answer

    def _writer(self, base: int) -> Callable[..., None]:
        def take(_: Uc, offset: int, size: int, value: int, __: object) -> None:
            name = self._named(base + offset, size, "write")
            if name:
                self._take(name, value)

        return take

    def _named(self, address: int, size: int, use: str) -> str | None:
        name = self.known.get(address)
        if name is None or size != 4:
            self.stray.append(f"{use} of {size} at {address:#x}")
            return None
        gate = gate_of(name, self.family)
        if gate and not self.written.get(gate[0], 0) & BIT[gate[1]]:
            self.stray.append(f"{use} of {name} before its clock runs")
        if name.startswith(("RCC", "PWR", "SYSCFG", "FLASH")):
            self.touched.append((use, name))
        return name

    def _value(self, name: str) -> int:
        value = self.written.get(name, 0)
        if name.endswith("_ISR"):
            error = self.usart.arrived[0][1] if self.usart.arrived else 0
            received = (BIT[5] if self.usart.arrived else 0) | (BIT[3] if self.usart.overrun else 0)
            on = self.silicon.usart_sends and self.written.get(f"{name[:-4]}_CR1", 0) & BIT[0]
            return (BIT[7] | BIT[6] if on else 0) | received | error  # TXE and TC: sending takes no time
        if name.endswith("_RDR"):
            return self.usart.arrived.pop(0)[0]
        if name == "SCB_CCSIDR":
            sets = self.board.cache.data.size // self.board.cache.data.ways // self.board.cache.line
            return sets - 1 << 13 | self.board.cache.data.ways - 1 << 3 | 1  # 32-byte lines
        if name == "MPU_TYPE":
            return MPU_REGIONS << 8
        if name in ("DWT_CYCCNT", "TIM2_CNT", "SYST_CSR"):
            return self.counters.read(name, self.clocks(), self.written)
        if name == "RCC_CR":  # HSERDY, PLLRDY follow HSEON, PLLON
            works = (BIT[16] if self.silicon.hse_starts else 0) | (BIT[24] if self.silicon.pll_locks else 0)
            return value | (value & works) << 1
        if (identity := self._identity(name)) is not None:
            return identity
        return self.family.answers(name, value, self.written, self.silicon)

    def _identity(self, name: str) -> int | None:
        chip, silicon = self.board.chip, self.silicon
        if name == "CPUID":
            return 0x411FC271
        if name == "DBGMCU_IDCODE":
            device = chip.device_id if silicon.device_id is None else silicon.device_id
            revision = max(chip.revisions.values()) if silicon.revision is None else silicon.revision
            return revision << 16 | device
        if name == "FLASH_SIZE":
            kib = chip.flash_kib if silicon.flash_kib is None else silicon.flash_kib
            return kib << self.family.flash_size_shift
        if name == self.family.options[0]:
            delivered = OPTION_BYTES.get(self.board.name, self.family.options[1])
            return delivered if silicon.option_bytes is None else silicon.option_bytes
        return None

    def _take(self, name: str, value: int) -> None:
        if name.endswith("_TDR"):
            self.usart.sent.append(value & 0xFF)
            return
        self.order.append((name, value))
        if name.endswith("_ICR"):
            self.usart.overrun = self.usart.overrun and not value & BIT[3]
        elif name.endswith("_BSRR"):
            self._pin(name, value)
        elif name == "MPU_RASR" and value & 1:
            self.regions[self.written["MPU_RNR"]] = decoded_region(self.written["MPU_RBAR"], value)
        elif name == "SCB_AIRCR" and value == RESET_REQUEST:
            self.was_reset = True
            self._machine.emu_stop()
        elif name.startswith("NVIC_ISER"):
            value |= self.written.get(name, 0)
        self.written[name] = value
        self.counters.write(name, value, self.written)

    def _pin(self, name: str, value: int) -> None:
        for pin, level in (
            (number % 16, "rise" if number < 16 else "fall") for number in range(32) if value >> number & 1
        ):
            if f"P{name[4]}{pin}" == self.board.timestamp_pin:
                self.edges.append((level, self.cycles))
                if self.stops_counter_at_fall and level == "fall":
                    self.debugger_lets_go()
            elif f"P{name[4]}{pin}" == self.board.light_pin:
                self.flashes += level == "rise"
