/* input.h: the input tensor as the host loads it. It lies outside the arena, because an inference overwrites the arena
 * and `infer N` runs N times on the same input.
 */
#ifndef INPUT_H
#define INPUT_H

#include <stddef.h>
#include <stdint.h>

enum input_status {
    INPUT_OK,       /* taken, more is expected */
    INPUT_COMPLETE, /* taken, the load is done */
    INPUT_NO_LOAD,  /* refused: no load was begun, or it is done already */
    INPUT_TOO_LONG, /* refused: more than the load announced, or than the model takes */
};

/* Forget everything: all bytes zero, no load under way. */
void input_clear(void);

/* Begin a load of `bytes` (1 .. MODEL_INPUT_BYTES); earlier contents are cleared. */
enum input_status input_begin(uint32_t bytes);

/* Append; all of the bytes or none are taken. */
enum input_status input_append(const uint8_t *bytes, uint32_t count);

/* What has been loaded so far. */
const uint8_t *input_bytes(void);
uint32_t input_loaded_bytes(void);

/* Copy all MODEL_INPUT_BYTES into the model's input tensor. */
void input_to_model(void);

#endif
