/* wait.h: waits that end. Counted by the SysTick timer in milliseconds of clock_now.core_hz: the core's own, so that it
 * runs before any peripheral does and whatever became of the clocks.
 */
#ifndef WAIT_H
#define WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Longer than anything here takes: a crystal starts in some milliseconds, a PLL locks in one, two bytes at 9600 baud
 * leave in two (data sheets). */
#define WAIT_MOST_MS 100u

/* True as soon as all bits of `flags` are set; false when they are not within WAIT_MOST_MS. */
bool wait_set(volatile const uint32_t *reg, uint32_t flags);

void wait_ms(uint32_t ms);

#endif
