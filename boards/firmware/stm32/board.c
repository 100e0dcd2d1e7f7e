/* board.c: board.h on STM32 boards with a Cortex-M7. */
#include "board.h"

#include "clock.h"
#include "console.h"
#include "cortex_m7.h"

static uint64_t counter_turns;
static uint32_t counter_last;

/* DDI 0403: invalidate before enabling; after reset the contents are undefined. Ways count from bit 30 because
 * the M7's data cache has four; sets count from bit 5 because a line has 32 bytes (Cortex-M7 TRM). */
static void caches_on(void)
{
    barrier();
    SCB_ICIALLU = 0;
    barrier();
    SCB_CCR |= SCB_CCR_IC;
    barrier();
    SCB_CSSELR = 0; /* level 1, data */
    barrier();
    const uint32_t geometry = SCB_CCSIDR;
    const uint32_t last_set = (geometry >> 13) & 0x7FFFu;
    const uint32_t last_way = (geometry >> 3) & 0x3FFu;
    for (uint32_t set = 0; set <= last_set; set++) {
        for (uint32_t way = 0; way <= last_way; way++) {
            SCB_DCISW = (way << 30) | (set << 5);
        }
    }
    barrier();
    SCB_CCR |= SCB_CCR_DC;
    barrier();
}

static void counter_on(void)
{
    SCB_DEMCR |= SCB_DEMCR_TRCENA;
    DWT_LAR = DWT_LAR_KEY;
    DWT_CYCCNT = 0;
    DWT_CTRL |= DWT_CTRL_CYCCNTENA;
}

void board_start(void)
{
    clock_start();
    caches_on();
    counter_on();
    console_start(clock_usart3_hz, BOARD_BAUD);
}

uint64_t board_ticks(void)
{
    const uint32_t counter = DWT_CYCCNT;
    counter_turns += counter < counter_last ? 1u : 0u;
    counter_last = counter;
    return (counter_turns << 32) + counter;
}

uint32_t board_clock_hz(void)
{
    return BOARD_CLOCK_HZ;
}

const char *board_name(void)
{
    return BOARD_NAME;
}

_Noreturn void board_reset(void)
{
    console_drain();
    barrier();
    SCB_AIRCR = SCB_AIRCR_VECTKEY | (SCB_AIRCR & SCB_AIRCR_PRIGROUP_MASK) | SCB_AIRCR_SYSRESETREQ;
    barrier();
    for (;;) {
    }
}
