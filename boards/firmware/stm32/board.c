/* board.c: board.h on STM32 boards with a Cortex-M7. */
#include "board.h"

#include "chip.h"
#include "clock.h"
#include "console.h"
#include "cortex_m7.h"
#include "counter.h"
#include "light.h"
#include "mpu.h"
#include "pins.h"
#include "watchdog.h"
#include "wiring.h"

/* Images of a first day (pipeline bringup): 1 has the internal clock and neither caches nor MPU, 2 the full clock, 3 all
 * of it, as every other image. */
#ifndef BRINGUP_STAGE
#define BRINGUP_STAGE 0
#endif
#define FULL_SPEED (BRINGUP_STAGE != 1)
#define CACHES_AND_MPU (BRINGUP_STAGE == 0 || BRINGUP_STAGE > 2)

extern const uint32_t _stack_guard[]; /* sections.ld */

static enum start_step at;

/* The peripherals of both families lie below 0x60000000 (RM0385, RM0410, RM0433, chapter 2). */
static const struct mpu_region REGIONS[] = {
    BOARD_REGIONS,
    {.base = (const void *)0x40000000u, .size_log2 = 29, .use = MPU_DEVICE},
    {.base = _stack_guard, .size_log2 = 8, .use = MPU_NOTHING},
};

__attribute__((section(".interrupt_vectors"), used)) static void (*const interrupts[CONSOLE_INTERRUPT + 1u])(void) = {
    [CONSOLE_INTERRUPT] = console_interrupt, /* no other is enabled */
};

/* A call each, which is shorter than the two instructions. */
__attribute__((noinline)) static void settle(void)
{
    barrier();
}

/* DDI 0403: invalidate before enabling; after reset the contents are undefined. Ways count from bit 30 because
 * the M7's data cache has four; sets count from bit 5 because a line has 32 bytes (Cortex-M7 TRM). */
static void caches_on(void)
{
    settle();
    SCB_ICIALLU = 0;
    settle();
    SCB_CCR |= SCB_CCR_IC;
    settle();
    SCB_CSSELR = 0; /* level 1, data */
    settle();
    const uint32_t geometry = SCB_CCSIDR;
    const uint32_t last_set = (geometry >> 13) & 0x7FFFu;
    const uint32_t last_way = (geometry >> 3) & 0x3FFu;
    for (uint32_t set = 0; set <= last_set; set++) {
        for (uint32_t way = 0; way <= last_way; way++) {
            SCB_DCISW = (way << 30) | (set << 5);
        }
    }
    settle();
    SCB_CCR |= SCB_CCR_DC;
    settle();
}

void board_start(void)
{
    at = START_CLOCK;
    watchdog_read_cause();
    watchdog_start(); /* before anything can wait in vain */
    if (BRINGUP_STAGE != 0) {
        chip_read(); /* before the MPU closes what it reads */
    }
    if (FULL_SPEED) {
        clock_full_speed();
    }
    clock_peripherals_on();
    at = START_MEMORY;
    if (CACHES_AND_MPU) {
        mpu_start(REGIONS, sizeof REGIONS / sizeof REGIONS[0]);
        caches_on();
    }
    counter_start();
    pin_set(TIMESTAMP_PIN, true);
    pin_output(TIMESTAMP_PIN);
    console_start(BOARD_BAUD);
    at = START_DONE;
}

uint64_t board_ticks(void)
{
    return counter_now();
}

uint32_t board_clock_hz(void)
{
    return clock_now.core_hz;
}

const char *board_trouble(void)
{
    return clock_now.trouble;
}

const char *board_option(void)
{
    return FLASH_IS_SPLIT ? "nDBANK=0" : NULL;
}

bool board_chip(uint32_t index, struct board_register *found)
{
    return chip_register(index, found);
}

void board_pulse(void)
{
    pin_set(TIMESTAMP_PIN, false);
    counter_pause_us(BOARD_PULSE_US); /* not by the cycle counter, which a debugger may stop */
    pin_set(TIMESTAMP_PIN, true);
}

void board_alive(void)
{
    watchdog_restart();
    (void)counter_now(); /* follows TIM2 through its turns */
}

bool board_was_hung(void)
{
    return watchdog_has_bitten();
}

const char *board_name(void)
{
    return BOARD_NAME;
}

_Noreturn void board_reset(void)
{
    if (!console_drain()) {
        light_blink(at);
    }
    settle();
    SCB_AIRCR = SCB_AIRCR_VECTKEY | SCB_AIRCR_SYSRESETREQ;
    for (;;) {
    }
}
