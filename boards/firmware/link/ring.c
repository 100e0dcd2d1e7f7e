#include "ring.h"

_Static_assert((RING_ENTRIES & (RING_ENTRIES - 1u)) == 0u, "the counts wrap");

void ring_clear(struct ring *ring)
{
    ring->put = 0;
    ring->taken = 0;
    ring->errors = 0;
    ring->damaged = false;
}

void ring_lose(struct ring *ring)
{
    ring->errors = ring->errors + 1u;
    ring->damaged = true;
}

void ring_put(struct ring *ring, uint8_t byte, bool damaged)
{
    const uint32_t put = ring->put;
    if (put - ring->taken >= RING_ENTRIES) {
        ring_lose(ring);
        return;
    }
    if (damaged) {
        ring_lose(ring);
    }
    ring->entries[put % RING_ENTRIES] = (uint16_t)(byte | (ring->damaged ? RING_DAMAGED : 0u));
    ring->damaged = false;
    ring->put = put + 1u;
}

uint16_t ring_take(struct ring *ring)
{
    const uint32_t taken = ring->taken;
    if (taken == ring->put) {
        return RING_EMPTY;
    }
    const uint16_t entry = ring->entries[taken % RING_ENTRIES];
    ring->taken = taken + 1u;
    return entry;
}
