/* counter.h: core cycles as 64 bits, from DWT.CYCCNT (32 bits, a turn takes 8.9 s at 480 MHz) and TIM2 (32 bits of
 * microseconds, 71 minutes).
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stdint.h>

void counter_start(void);
uint64_t counter_now(void);

#endif
