/* input.h: the input tensor as the host loads it. It lies outside the arena, because an inference overwrites the arena
 * and `infer N` runs N times on the same input.
 */
#ifndef INPUT_H
#define INPUT_H

#include "load.h"
#include "model.h"

/* Known by name to a debug probe, which may write it directly (`db place`). */
extern uint8_t input_buffer[MODEL_INPUT_BYTES];
extern struct load input_load;

/* All bytes zero, no load under way; before anything else here. */
void input_clear(void);

/* Copy all MODEL_INPUT_BYTES into the model's input tensor. */
void input_to_model(void);

#endif
