/* counter.h: executed instructions.
 *
 * QEMU knows no cycles. Under `-icount shift=10` an instruction takes 1024 ns of virtual time, and the 25 MHz timers
 * count 25.6 ticks for it: counter_now() turns that back into instructions, exactly. Without -icount the count means
 * nothing. TIMER0 alone would wrap after 168 M instructions; the second timer, with its prescaler of 256, tells its
 * turns apart for 43 thousand million.
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stdint.h>

void counter_start(void);
uint64_t counter_now(void);

#endif
