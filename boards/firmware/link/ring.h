/* ring.h: bytes between the console's interrupt, which puts, and the main loop, which takes.
 *
 * One side each, so that no lock is needed. A byte that came damaged, or after which bytes were lost, must not turn one
 * command into another: the next byte that is put carries RING_DAMAGED, and the protocol refuses the line it is in.
 */
#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stdint.h>

#define RING_ENTRIES 512u /* two of the longest lines; a power of two, so that the counts may wrap */
#define RING_DAMAGED 0x100u
#define RING_EMPTY 0x200u

struct ring {
    volatile uint32_t put;    /* entries ever put, modulo 2^32 */
    volatile uint32_t taken;  /* entries ever taken */
    volatile uint32_t errors; /* bytes damaged or lost */
    bool damaged;             /* the next byte is to carry the mark; the putting side's own */
    volatile uint16_t entries[RING_ENTRIES];
};

void ring_clear(struct ring *ring);

/* Of the interrupt. A full ring loses the byte, and counts it. */
void ring_put(struct ring *ring, uint8_t byte, bool damaged);

/* Of the interrupt: a byte was lost before it could be put. */
void ring_lose(struct ring *ring);

/* Of the main loop: a byte, perhaps with RING_DAMAGED, or RING_EMPTY. */
uint16_t ring_take(struct ring *ring);

#endif
