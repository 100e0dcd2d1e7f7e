"""Puts the code from before each finding of the first day back, one at a time, and asks the finding's tests.

    python -m tests.benchmarks.firmware.findings_before [WORD...]    # only findings whose name has one of the words

Each line says what the tests printed on the old code; one that passes there proves nothing, and the exit code is 1.
Works on a copy of the tree.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
STM32 = "boards/firmware/stm32"
FIRST_DAY, BRINGUP = "tests/boards/stm32/test_first_day.py", "tests/boards/stm32/test_bringup.py"
FLASHER, MEASURE = "tests/hil/bench/test_flasher.py", "tests/stages/measure/test_measure.py"
_LIMIT_S = 1200.0


@dataclass(frozen=True)
class Finding:
    """One text of today, what stood there before, and the tests that must notice."""

    name: str
    file: str
    today: str
    before: str
    tests: tuple[str, ...]


def _waits_for_ever(flag: str) -> str:
    return f"while ((USART_ISR & {flag}) == 0u) {{\n        board_alive();\n    }}\n    return true;\n"


FINDINGS = (
    Finding(
        "1 counter stopped by the debugger",
        f"{STM32}/counter.c",
        "if ((SCB_DEMCR & SCB_DEMCR_TRCENA) == 0u || (DWT_CTRL & DWT_CTRL_CYCCNTENA) == 0u) {",
        "if (unit == 0u) {",
        (f"{FIRST_DAY}::test_time_goes_on_after_a_debugger_switched_the_cycle_counter_off",),
    ),
    Finding(
        "1 pulse timed by the cycle counter",
        f"{STM32}/board.c",
        "counter_pause_us(BOARD_PULSE_US); /* not by the cycle counter, which a debugger may stop */",
        "const uint32_t start = DWT_CYCCNT;\n"
        "    while (DWT_CYCCNT - start < BOARD_CLOCK_HZ / 1000000u * BOARD_PULSE_US) {\n    }",
        (f"{FIRST_DAY}::test_the_pulse_ends_without_a_cycle_counter",),
    ),
    Finding(
        "1 no reset after flashing",
        "stages/flash/proof.py",
        "link.restart()  # a debugger that let go",
        "pass  # a debugger that let go",
        ("tests/stages/flash/test_flash_board.py::test_board_is_flashed_once_and_an_unchanged_image_not_again",),
    ),
    Finding(
        "2 waits for the console feed the watchdog",
        f"{STM32}/console.c",
        "    if (state == CONSOLE_DOWN) {\n        return false;\n    }\n"
        "    const bool is_set = (USART_ISR & flag) != 0u || (state == CONSOLE_UP && wait_set(&USART_ISR, flag));\n"
        "    state = is_set ? CONSOLE_UP : CONSOLE_STUCK;\n    return is_set;\n",
        f"    {_waits_for_ever('flag')}",
        (
            f"{FIRST_DAY}::test_a_fault_before_the_console_blinks_and_resets",
            f"{FIRST_DAY}::test_a_usart_that_sends_nothing_does_not_stop_the_board",
        ),
    ),
    Finding(
        "2 no light without a console",
        f"{STM32}/board.c",
        "    if (!console_drain()) {\n        light_blink(at);\n    }\n",
        "    (void)console_drain();\n    (void)light_blink;\n    (void)at;\n",
        (f"{FIRST_DAY}::test_a_fault_before_the_console_blinks_and_resets",),
    ),
    Finding(
        "3 the wait for a clock has no end",
        f"{STM32}/wait.c",
        "passed <= WAIT_MOST_MS; passed += milliseconds_passed()",
        "passed <= UINT32_MAX; passed += milliseconds_passed()",
        (
            f"{FIRST_DAY}::test_a_dead_oscillator_is_told_and_nothing_is_measured_on_the_internal_one",
            f"{FIRST_DAY}::test_every_wait_of_start_up_ends_in_words",
        ),
    ),
    Finding(
        "3 measured on the internal clock",
        "boards/firmware/link/protocol.c",
        "if (board_trouble() != NULL) { /*",
        "if (board_name() == NULL) { /*",
        (f"{FIRST_DAY}::test_a_dead_oscillator_is_told_and_nothing_is_measured_on_the_internal_one",),
    ),
    Finding(
        "3 the host takes any clock",
        "stages/measure/session.py",
        "if found != board.clock_hz:",
        "if not found:",
        (f"{MEASURE}::test_a_board_on_another_clock_is_not_measured",),
    ),
    Finding(
        "4 480 MHz on revision Y",
        f"{STM32}/families/clock_h7.c",
        "return DBGMCU_IDCODE >= DBGMCU_REV_ID_X << 16;",
        "return DBGMCU_IDCODE != 0u;",
        (f"{FIRST_DAY}::test_old_silicon_does_not_get_480_mhz",),
    ),
    Finding(
        "5 OpenOCD under reset with ST's own driver",
        "boards/nucleo_h743zi2/board.yaml",
        "  openocd_under_reset:\n    files: [interface/stlink-dap.cfg, target/stm32h7x_dual_bank.cfg]\n"
        "    transport: dapdirect_swd\n",
        "",
        (f"{FLASHER}::test_openocd_reaches_an_h743_under_reset_as_a_plain_debug_port",),
    ),
    Finding(
        "5 any OpenOCD will do",
        "pipeline.yaml",
        'openocd: "0.12"',
        'openocd: "0.1"',
        (f"{FLASHER}::test_the_doctor_refuses_an_openocd_that_cannot_choose_a_probe",),
    ),
    Finding(
        "5 the DISCO's name in pyOCD",
        "boards/disco_f746ng/board.yaml",
        "pyocd_target: stm32f746nghx",
        "pyocd_target: stm32f746ng",
        (f"{FLASHER}::test_the_discovery_board_has_the_name_that_pyocds_pack_gives_it",),
    ),
    Finding(
        "6 double precision on the F746",
        "boards/disco_f746ng/board.yaml",
        "fpu: fpv5-sp-d16 # single precision only (DS, Arm Cortex-M7 with FPU)\n",
        "",
        (f"{FIRST_DAY}::test_no_image_has_an_instruction_that_its_fpu_lacks",),
    ),
    Finding(
        "6 PLL1's Q and R stay on",
        f"{STM32}/families/clock_h7.c",
        "RCC_PLLCFGR = RCC_PLLCFGR_PLL1RGE_2_TO_4_MHZ",
        "RCC_PLLCFGR |= RCC_PLLCFGR_PLL1RGE_2_TO_4_MHZ",
        (f"{FIRST_DAY}::test_the_plls_unused_outputs_are_off_and_the_voltage_is_read_back",),
    ),
    Finding(
        "6 SYSCFG_PWRCR is not read back",
        f"{STM32}/families/clock_h7.c",
        "    (void)SYSCFG_PWRCR; /*",
        "    /*",
        (f"{FIRST_DAY}::test_the_plls_unused_outputs_are_off_and_the_voltage_is_read_back",),
    ),
    Finding(
        "6 nobody reads nDBANK",
        "boards/nucleo_f767zi/wiring.h",
        "((FLASH_OPTCR & FLASH_OPTCR_NDBANK) == 0u)",
        "false",
        (f"{FIRST_DAY}::test_a_chip_with_two_flash_banks_says_so_when_it_starts",),
    ),
    Finding(
        "7 a burst has no laps",
        "boards/firmware/link/bench.c",
        "        note_lap();\n        input_to_model();",
        "        input_to_model();",
        (f"{FIRST_DAY}::test_inferences_behind_each_other_are_timed_one_by_one_in_cycles",),
    ),
    Finding(
        "7 cycles from whole microseconds",
        "stages/measure/session.py",
        'elif device.link.knows("check"):  # our own firmware',
        'elif device.link.knows("nothing"):  # our own firmware',
        (f"{MEASURE}::test_cycles_are_those_of_the_counter_and_a_burst_stands_beside_single_inferences",),
    ),
    Finding(
        "7 a clock that is off goes unseen",
        "stages/tools/bringup/checks.py",
        "MOST_SHARE = 60.0, 0.0001, 0.001",
        "MOST_SHARE = 60.0, 0.0001, 1.0",
        (f"{BRINGUP}::test_an_injected_fault_is_named_and_nothing_hangs[an oscillator 0.5 % off]",),
    ),
    Finding(
        "7 the F7's RAM behind 64 bits",
        "boards/nucleo_f767zi/board.yaml",
        "behind a 32-bit bus",
        "behind a 64-bit bus",
        ("tests/boards/test_board_descriptions.py::test_a_line_of_the_f7s_ram_comes_over_a_32_bit_bus",),
    ),
)


HANGS = ("2 waits for the console feed the watchdog", "3 the wait for a clock has no end")  # sooner seen


def main() -> int:
    words, unnoticed = sys.argv[1:], []
    with tempfile.TemporaryDirectory(prefix="findings-") as folder:
        tree = Path(folder) / "tree"
        left_out = shutil.ignore_patterns(".*", "runs", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT, tree, ignore=left_out)
        for finding in FINDINGS:
            if words and not any(word in finding.name for word in words):
                continue
            told = _asked(finding, tree)
            sys.stdout.write(f"{finding.name} | {', '.join(t.split('::')[1] for t in finding.tests)} | {told}\n")
            sys.stdout.flush()
            if told.startswith("PASSED"):
                unnoticed.append(finding.name)
    sys.stdout.write(f"{len(unnoticed)} unnoticed {unnoticed or ''}\n")
    return 1 if unnoticed else 0


def _asked(finding: Finding, tree: Path) -> str:
    """What every test of a finding prints on the code before it; PASSED if one does."""
    path = tree / finding.file
    today = path.read_text()
    if today.count(finding.today) != 1:
        raise SystemExit(f"{finding.name}: {finding.file} has its text {today.count(finding.today)} times, needed once")
    path.write_text(today.replace(finding.today, finding.before))
    model = tree / "tests/boards/stm32/emulated_board.py"
    patient = model.read_text()
    if finding.name in HANGS:
        model.write_text(patient.replace("MOST_INSTRUCTIONS = 20_000_000", "MOST_INSTRUCTIONS = 3_000_000"))
    try:
        return "; ".join(_run(test, tree) for test in finding.tests)
    finally:
        path.write_text(today)
        model.write_text(patient)


def _run(test: str, tree: Path) -> str:
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short", test]
    done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode == 0:
        return "PASSED"
    wrong = re.findall(r"^E\s+(.*)", done.stdout, re.MULTILINE)
    return f"failed: {wrong[0] if wrong else done.stdout.strip().splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(main())
