#include "prof.h"

#include "board.h"

volatile uint32_t prof_stamp[MODEL_OPS + 1];
bool prof_timing;

static uint64_t recorded[MODEL_OPS + 1];
static uint64_t mark_ticks; /* what one mark costs, measured on an empty operator */

void prof_record(uint32_t index)
{
    recorded[index] = board_ticks();
}

void prof_start(void)
{
    prof_timing = true;
    /* Not through prof_mark(): an observer of prof_stamp shall see the model's own marks only. The first pair warms
     * the instruction cache. */
    for (int pass = 0; pass < 2; pass++) {
        prof_record(0);
        prof_record(1);
        mark_ticks = recorded[1] - recorded[0];
    }
}

void prof_stop(void)
{
    prof_timing = false;
}

uint64_t prof_ticks(uint32_t index)
{
    const uint64_t ticks = recorded[index + 1u] - recorded[index];
    return ticks > mark_ticks ? ticks - mark_ticks : 0u;
}
