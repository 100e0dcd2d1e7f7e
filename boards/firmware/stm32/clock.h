/* clock.h: what a family's clock_*.c supplies. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock {
    uint32_t core_hz;
    uint32_t console_hz; /* what drives the console's USART */
    uint32_t timer_hz;   /* and TIM2 */
    const char *trouble; /* NULL, or what kept the core slower than board.yaml says: HSE, PLL, VOS (voltage, over-drive),
                            ACR (flash wait states), REV (silicon revision) */
};

/* As it is now; from reset on the internal oscillator (HSI) drives everything. */
extern struct clock clock_now;

/* Voltage, flash wait states, PLL and bus prescalers for BOARD_CLOCK_HZ. Where a step does not come about, HSI goes on
 * driving the core, and `trouble` says so. */
void clock_full_speed(void);

/* The clocks of TIM2, of the console and of the ports that wiring.h names. */
void clock_peripherals_on(void);

/* The clocks of those ports alone, and of the one with the light. */
void clock_ports_on(void);

#endif
