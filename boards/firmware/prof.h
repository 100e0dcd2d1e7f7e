/* prof.h: marks between the operators of an inference.
 *
 * prof_mark(i) is called right before operator i, and with MODEL_OPS after the last. It always stores to prof_stamp[i]:
 * a profiler that watches the twin from outside finds the boundaries by these addresses. The clock is read only between
 * prof_start() and prof_stop(), so that `infer` pays one store and one test per operator.
 */
#ifndef PROF_H
#define PROF_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

extern volatile uint32_t prof_stamp[MODEL_OPS + 1];
extern bool prof_timing;

void prof_start(void);
void prof_stop(void);
void prof_record(uint32_t index);

/* Ticks of one operator in the last timed inference, without those of the mark itself. */
uint64_t prof_ticks(uint32_t index);

static inline void prof_mark(uint32_t index)
{
    prof_stamp[index] = index;
    if (prof_timing) {
        prof_record(index);
    }
}

#endif
