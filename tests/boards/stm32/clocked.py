"""The counters of the register model: DWT, TIM2 and SysTick, all of one clock, as far as they are switched on."""

from __future__ import annotations

from tests.boards.stm32.register_model import BIT, Clocks, Registers

CYCLES_PER_READ = 40
LOOKS_PER_MILLISECOND = 4  # at SysTick, by a loop that waits


class Counters:
    """`cycles` is time since power-on; tests move it on as they like."""

    def __init__(self) -> None:
        self.cycles = 0
        self.reset()

    def reset(self) -> None:
        self._runs = False  # the DWT: TRCENA and CYCCNTENA
        self._value = self._since = 0  # its counter at a cycle
        self._timer_since = 0
        self._looks = 0

    def read(self, name: str, clocks: Clocks, written: Registers) -> int:
        if name == "SYST_CSR":
            self._looks += 1
            over = self._looks % LOOKS_PER_MILLISECOND == 0
            self.cycles += (written["SYST_RVR"] + 1) if over else 0
            return written.get(name, 0) | (BIT[16] if over else 0)
        self.cycles += CYCLES_PER_READ
        if name == "TIM2_CNT":
            prescaled_hz = clocks.timer_hz // (written["TIM2_PSC"] + 1)
            return (self.cycles - self._timer_since) * prescaled_hz // clocks.core_hz & 0xFFFFFFFF
        return self._dwt() & 0xFFFFFFFF

    def write(self, name: str, value: int, written: Registers) -> None:
        if name == "TIM2_EGR":
            self._timer_since = self.cycles
        if name in ("DWT_CYCCNT", "DWT_CTRL", "SCB_DEMCR"):
            self._value = value if name == "DWT_CYCCNT" else self._dwt()
            self._since = self.cycles
            traced = written.get("SCB_DEMCR", 0) & BIT[24]
            self._runs = bool(traced and written.get("DWT_CTRL", 0) & 1)

    def _dwt(self) -> int:
        return self._value + (self.cycles - self._since if self._runs else 0)
