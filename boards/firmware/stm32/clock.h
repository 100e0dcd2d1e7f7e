/* clock.h: what a board's clock.c supplies. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* Voltage, flash wait states, PLL and bus prescalers for BOARD_CLOCK_HZ, and the clocks of GPIOD and USART3. */
void clock_start(void);

/* Clock that drives USART3 after clock_start. */
extern const uint32_t clock_usart3_hz;

#endif
