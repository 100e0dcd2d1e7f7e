#include "ticks.h"

uint64_t ticks_nearby(struct ticks *ticks, uint32_t slow, uint32_t unit)
{
    ticks->slow_turns += slow < ticks->slow_last ? 1u : 0u;
    ticks->slow_last = slow;
    return ((ticks->slow_turns << 32) + slow) * unit;
}

uint64_t ticks_now(struct ticks *ticks, uint32_t fast, uint32_t slow, uint32_t unit)
{
    const uint64_t nearby = ticks_nearby(ticks, slow, unit);
    return nearby + (uint64_t)(int64_t)(int32_t)(fast - (uint32_t)nearby);
}
