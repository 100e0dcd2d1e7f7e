/* ticks.h: a 64-bit count from a fast 32-bit counter, which wraps within seconds, and a slow one of the same clock.
 *
 * The fast counter gives the low word exactly. The slow one, times its unit, comes near enough to tell which turn of
 * the fast one it is: it may be off by almost half a turn. Only the slow counter's own turns have to be followed, by at
 * least one call in each of them.
 */
#ifndef TICKS_H
#define TICKS_H

#include <stdint.h>

struct ticks {
    uint64_t slow_turns;
    uint32_t slow_last;
};

/* What the slow counter alone says. */
uint64_t ticks_nearby(struct ticks *ticks, uint32_t slow, uint32_t unit);

/* The count now, from both counters read at nearly the same time; `unit` is what one step of the slow one is worth. */
uint64_t ticks_now(struct ticks *ticks, uint32_t fast, uint32_t slow, uint32_t unit);

#endif
