/* clock.h: what a family's clock_*.c supplies. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clock {
    uint32_t core_hz;
    uint32_t console_hz; /* what drives the console's USART */
    uint32_t timer_hz;   /* and TIM2 */
    const char *trouble; /* why the core is slower than board.yaml says; NULL when it is not */
};

/* As it is now; from reset on the internal oscillator (HSI) drives everything. */
extern struct clock clock_now;

/* Voltage, flash wait states, PLL and bus prescalers for BOARD_CLOCK_HZ unless `full_speed` is false, and the clocks of
 * TIM2, of the console and of the ports that wiring.h names. Where a step does not come about, HSI goes on driving the
 * core, and `trouble` says so. */
void clock_start(bool full_speed);

/* The clock of a port, by its letter. */
void clock_port_on(char letter);

#endif
