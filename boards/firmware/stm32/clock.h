/* clock.h: what a family's clock_*.c supplies. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* Voltage, flash wait states, PLL and bus prescalers for BOARD_CLOCK_HZ, and the clocks of TIM2, of the console and of
 * the ports that wiring.h names. */
void clock_start(void);

/* After clock_start: what drives the console's USART, and TIM2. */
extern const uint32_t clock_console_hz;
extern const uint32_t clock_timer_hz;

#endif
