"""A board's own image running in unicorn on the register model: from reset to `m-ready`, and on, byte by byte.

unicorn has neither NVIC nor MPU. An interrupt is made here as the core makes it: the handler that the vector table
names is run between two instructions, provided that USART and NVIC have it enabled. And every access to memory is held
against the MPU regions that were written, by the rules of PMSAv7 (DDI 0403, B3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from unicorn import (
    UC_ARCH_ARM,
    UC_HOOK_BLOCK,
    UC_HOOK_MEM_READ,
    UC_HOOK_MEM_WRITE,
    UC_MEM_WRITE,
    UC_MODE_MCLASS,
    UC_MODE_THUMB,
    Uc,
)
from unicorn.arm_const import UC_ARM_REG_LR, UC_ARM_REG_PC, UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M7

from boards import Board
from tests.boards.stm32.register_model import (
    BIT,
    FLASH_ORIGIN,
    HSE_HZ,
    INTERRUPTS,
    allowed_registers,
    family_of,
    gate_of,
)

READY = b"m-ready\r\n"
PERIPHERALS = ((0x40000000, 1 << 20), (0x52000000, 1 << 16), (0x58000000, 1 << 20), (0x5C000000, 1 << 16))
CORE_SPACE = (0xE0000000, 1 << 20)
CYCLES_PER_READ = 40
MPU_REGIONS = 8
AFTER_A_BYTE = 800  # instructions: more than the main loop needs for it
MOST_INSTRUCTIONS = 3_000_000


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

    def __init__(self, image: Path, board: Board, *, reset_cause: int = 0) -> None:
        self.board, self.family = board, family_of(board)
        self.known = allowed_registers(board)
        self.written: dict[str, int] = {"RESET_CAUSE": reset_cause}
        self.order: list[tuple[str, int]] = []
        self.stray: list[str] = []
        self.forbidden: list[str] = []  # accesses that the MPU would have refused
        self.regions: dict[int, MpuRegion] = {}
        self.usart = Usart()
        self.cycles = 0  # since the counter was cleared, without end
        self.edges: list[tuple[str, int]] = []  # of the timestamp pin: which, and the cycle
        self.was_reset = False
        self._replies_wanted = 1
        self._stopping = False
        self._machine = self._built(image)
        self._run(MOST_INSTRUCTIONS)

    @property
    def sent(self) -> bytes:
        return bytes(self.usart.sent)

    def ask(self, command: bytes) -> bytes:
        """Send a command through the interrupt and return what came back, `m-ready` included."""
        already = len(self.usart.sent)
        self._replies_wanted = self.sent.count(READY) + command.count(b"%")
        for byte in command:
            self.receive(byte)
            self._run(AFTER_A_BYTE)
        self._run(MOST_INSTRUCTIONS)
        return self.sent[already:]

    def receive(self, byte: int, *, flags: int = 0, overrun: bool = False) -> None:
        """A byte arrives, and the interrupt is taken."""
        self.usart.arrived.append((byte, flags))
        self.usart.overrun = overrun
        self._interrupt()
        assert not self.usart.arrived, "the handler left the byte where it was"

    def mpu_allows(self, address: int, use: str) -> bool:
        """As the core decides: the highest region that covers the address; none means no access."""
        for _, region in sorted(self.regions.items(), reverse=True):
            if region.covers(address):
                return region.allows(use)
        return False

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

    def _run(self, instructions: int) -> None:
        if self.was_reset:
            return
        if self.sent.count(READY) < self._replies_wanted or instructions == AFTER_A_BYTE:
            self._machine.emu_start(self._machine.reg_read(UC_ARM_REG_PC) | 1, 0xFFFFFFFF, count=instructions)

    def _built(self, image: Path) -> Uc:
        machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M7)
        for memory in self.board.memories.values():
            machine.mem_map(memory.origin, memory.size)
        for origin, size in (*PERIPHERALS, CORE_SPACE):
            machine.mmio_map(origin, size, self._reader(origin), None, self._writer(origin), None)
        machine.hook_add(UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, self._on_data)
        machine.hook_add(UC_HOOK_BLOCK, self._on_block)
        with image.open("rb") as file:
            for segment in ELFFile(file).iter_segments():
                if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]:
                    machine.mem_write(segment["p_paddr"], segment.data())
        stack, entry = (int.from_bytes(machine.mem_read(FLASH_ORIGIN + 4 * i, 4), "little") for i in (0, 1))
        machine.reg_write(UC_ARM_REG_SP, stack)
        machine.reg_write(UC_ARM_REG_PC, entry)
        return machine

    def _on_data(self, _: Uc, kind: int, address: int, size: int, __: int, ___: object) -> None:
        if address < CORE_SPACE[0]:
            self._check(address, size, "write" if kind == UC_MEM_WRITE else "read")

    def _on_block(self, uc: Uc, address: int, size: int, __: object) -> None:
        self._check(address, size, "execute")
        if self._stopping:  # not from within a store, which would then be done again
            self._stopping = False
            uc.emu_stop()

    def _check(self, address: int, size: int, use: str) -> None:
        if self.written.get("MPU_CTRL", 0) & 1:
            for end in (address, address + size - 1):
                if not self.mpu_allows(end, use):
                    self.forbidden.append(f"{use} of {size} at {address:#x}")

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
        return name

    def _value(self, name: str) -> int:
        value = self.written.get(name, 0)
        if name.endswith("_ISR"):
            error = self.usart.arrived[0][1] if self.usart.arrived else 0
            received = (BIT[5] if self.usart.arrived else 0) | (BIT[3] if self.usart.overrun else 0)
            return BIT[7] | BIT[6] | received | error  # TXE and TC: sending takes no time
        if name.endswith("_RDR"):
            return self.usart.arrived.pop(0)[0]
        if name == "SCB_CCSIDR":
            sets = self.board.cache.data.size // self.board.cache.data.ways // self.board.cache.line
            return sets - 1 << 13 | self.board.cache.data.ways - 1 << 3 | 1  # 32-byte lines
        if name == "MPU_TYPE":
            return MPU_REGIONS << 8
        if name == "DWT_CYCCNT":
            self.cycles += CYCLES_PER_READ
            return self.cycles & 0xFFFFFFFF
        if name == "TIM2_CNT":
            timer_hz = self.family.clocks(self.written, HSE_HZ[self.board.name], self.board.console.uart).timer_hz
            prescaled_hz = timer_hz // (self.written["TIM2_PSC"] + 1)
            return self.cycles * prescaled_hz // self.board.clock_hz & 0xFFFFFFFF
        if name == "RCC_CR":  # HSERDY, PLLRDY follow HSEON, PLLON
            return value | (value & (BIT[16] | BIT[24])) << 1
        return self.family.answers(name, value, self.written)

    def _take(self, name: str, value: int) -> None:
        if name.endswith("_TDR"):
            self.usart.sent.append(value & 0xFF)
            self._stopping = self.sent.endswith(READY) and self.sent.count(READY) >= self._replies_wanted
            return
        self.order.append((name, value))
        if name.endswith("_ICR"):
            self.usart.overrun = self.usart.overrun and not value & BIT[3]
        elif name == f"GPIO{self.board.timestamp_pin[1]}_BSRR":
            number = int(self.board.timestamp_pin[2:])
            self.edges.append(({BIT[number]: "rise", BIT[number] << 16: "fall"}[value], self.cycles))
        elif name == "DWT_CYCCNT":
            self.cycles = value
        elif name == "MPU_RASR" and value & 1:
            self.regions[self.written["MPU_RNR"]] = decoded_region(self.written["MPU_RBAR"], value)
        elif name == "SCB_AIRCR" and value == 0x05FA0004:
            self._stopping = self.was_reset = True
        elif name.startswith("NVIC_ISER"):
            value |= self.written.get(name, 0)
        self.written[name] = value
