/* bench.h: inferences and their time.
 *
 * The lap clock stands still while a lap line is on its way to the host: between the two lines of `infer` lie the N
 * inferences alone (each with the copy of its input into the arena, which the previous one overwrote).
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

/* Print `m-lap-us-N`. */
void bench_lap(void);

/* Run and keep the output. */
void bench_infer(uint32_t times);

/* One inference with the clock read at every mark; prof_ticks() tells the result. */
void bench_infer_layers(void);

/* Output tensor of the last inference, MODEL_OUTPUT_BYTES long; zero before the first. */
const int8_t *bench_output(void);

#endif
