/* counter.h: core cycles as 64 bits, from DWT.CYCCNT (32 bits, a turn takes 8.9 s at 480 MHz) and TIM2 (32 bits of
 * microseconds, 71 minutes).
 *
 * A debugger that lets go may switch the DWT off behind our back (pyOCD writes DEMCR = 0). TIM2 goes on, so a cycle
 * counter that stands still is started again in step with it, to a microsecond.
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stdint.h>

void counter_start(void);
uint64_t counter_now(void);

/* How often somebody stopped the cycle counter since counter_start. */
uint32_t counter_restarts(void);

/* At least that long, by TIM2 alone. */
void counter_pause_us(uint32_t us);

#endif
