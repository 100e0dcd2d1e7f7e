/* wait.h: waits that end. Counted by the SysTick timer in milliseconds of clock_now.core_hz: the core's own, so that it
 * runs before any peripheral does and whatever became of the clocks.
 */
#ifndef WAIT_H
#define WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* True as soon as (*reg & mask) == value; false when that is not so within `most_ms`. */
bool wait_until(volatile const uint32_t *reg, uint32_t mask, uint32_t value, uint32_t most_ms);

void wait_ms(uint32_t ms);

#endif
