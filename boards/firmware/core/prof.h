/* prof.h: marks between the operators of an inference.
 *
 * prof_mark(i) is called right before operator i, and with MODEL_OPS after the last. It always stores to prof_stamp[i]:
 * a profiler that watches the twin from outside finds the boundaries by these addresses. The clock is read only between
 * prof_start() and prof_stop(), so that `infer` pays one store and one test per operator. With a front end one more
 * mark stands before all others.
 */
#ifndef PROF_H
#define PROF_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

#define PROF_FIRST_OP (MODEL_FRONT_END ? 1u : 0u)
#define PROF_MARKS (PROF_FIRST_OP + MODEL_OPS + 1u)

extern volatile uint32_t prof_stamp[PROF_MARKS];
extern bool prof_timing;

void prof_start(void);
void prof_stop(void);
void prof_record(uint32_t mark);

/* Until prof_stop() no time is taken: tensor_show() is called at the mark before operator `index` (MODEL_OPS: the
 * last). By name, not through a pointer, so that the depth of the stack can be read off the code. */
void prof_observe(uint32_t index);

/* Ticks of one operator in the last timed inference, without those of the mark itself. */
uint64_t prof_ticks(uint32_t index);

static inline void prof_mark_at(uint32_t mark)
{
    prof_stamp[mark] = mark;
    if (prof_timing) {
        prof_record(mark);
    }
}

static inline void prof_mark(uint32_t index)
{
    prof_mark_at(PROF_FIRST_OP + index);
}

#if MODEL_FRONT_END
static inline void prof_mark_front_end(void)
{
    prof_mark_at(0);
}

/* From its mark to the first operator's, with the copy of the input and the lap's reading of the clock. */
uint64_t prof_front_end_ticks(void);
#endif

#endif
