#include "prof.h"

#include "board.h"
#include "tensor.h"

volatile uint32_t prof_stamp[PROF_MARKS];
bool prof_timing;

static uint64_t recorded[PROF_MARKS];
static uint64_t mark_ticks; /* what one mark costs, measured on an empty operator */
static bool observes;
static uint32_t observed_mark;

void prof_record(uint32_t mark)
{
    if (!observes) {
        recorded[mark] = board_ticks();
    } else if (mark == observed_mark) {
        tensor_show();
    }
}

void prof_observe(uint32_t index)
{
    observes = true;
    observed_mark = PROF_FIRST_OP + index;
    prof_timing = true;
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
    observes = false;
}

static uint64_t ticks_after(uint32_t mark)
{
    const uint64_t ticks = recorded[mark + 1u] - recorded[mark];
    return ticks > mark_ticks ? ticks - mark_ticks : 0u;
}

uint64_t prof_ticks(uint32_t index)
{
    return ticks_after(PROF_FIRST_OP + index);
}

#if MODEL_FRONT_END
uint64_t prof_front_end_ticks(void)
{
    return ticks_after(0);
}
#endif
