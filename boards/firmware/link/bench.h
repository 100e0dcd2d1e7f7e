/* bench.h: inferences and their time.
 *
 * The lap clock stands still while a lap line is on its way to the host: between the two lines of `infer` lie the N
 * inferences alone (each with the copy of its input into the arena, which the previous one overwrote).
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

#include "model.h"

/* Tell the time: `m-lap-us-N`, or a pulse on the timestamp pin when energy is measured. */
void bench_lap(void);

/* Run on the loaded input and keep the output. Where time counts, input_as_tensor() comes before. A network with a state
 * begins with its first one, so that a command that is sent again gives the same. */
void bench_infer(uint32_t times);

#if MODEL_FRONT_END
/* Features of the loaded audio into the model's input tensor, where they last until the next inference. */
void bench_features(void);

/* Front end and network on the loaded audio; keeps the output. */
void bench_listen(void);
#endif

/* board_ticks() before the first and after each of the first BENCH_MOST_LAPS inferences of the last bench_infer(): they
 * ran right behind each other, with nothing but this look at the counter between two of them. */
#define BENCH_MOST_LAPS 32u
extern uint64_t bench_lap_ends[BENCH_MOST_LAPS + 1u];
extern uint32_t bench_laps; /* how many entries are set: one more than there were inferences */

/* The network on what model_input() holds; keeps the output. */
void bench_invoke(void);

/* One inference with the clock read at every mark; prof_ticks() tells the result. With a front end that runs too, on
 * the loaded audio, but the network takes the loaded input as ever. */
void bench_infer_layers(void);

/* Output tensors of the last inference, one behind the other, MODEL_OUTPUT_BYTES long. */
const int8_t *bench_output(void);

#endif
