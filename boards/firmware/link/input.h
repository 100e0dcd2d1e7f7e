/* input.h: the input tensors as the host loads them, one behind the other. They lie outside the arena, because an inference overwrites the arena
 * and `infer N` runs N times on the same input.
 */
#ifndef INPUT_H
#define INPUT_H

#include "load.h"
#include "model.h"

#ifndef INPUT_IS_UINT8
#define INPUT_IS_UINT8 0
#endif

/* What a host sends: a byte a value, or a float32 where model.h says how to quantise it. */
#ifdef MODEL_INPUT_SCALE
#define INPUT_SENT_BYTES (MODEL_INPUT_BYTES * 4u)
#else
#define INPUT_SENT_BYTES MODEL_INPUT_BYTES
#endif

/* Known by name to a debug probe, which may write it directly (`db place`). */
extern uint8_t input_buffer[INPUT_SENT_BYTES];
extern struct load input_load;

/* All bytes zero, no load under way; before anything else here. */
void input_clear(void);

/* The bytes in the buffer are changed in place between what the host sent and what the tensor holds, where these differ
 * (INPUT_IS_UINT8: what was sent is 128 more), so that no inference has to convert. Floats stay, and are quantised
 * beside the buffer. Both calls may be repeated. */
void input_as_sent(void);
void input_as_tensor(void);

/* A debug probe has written what a host would send, whatever the buffer held before. */
void input_was_placed(void);

/* After input_as_tensor(): copy all MODEL_INPUT_BYTES into the model's input tensors. */
void input_to_model(void);

#endif
