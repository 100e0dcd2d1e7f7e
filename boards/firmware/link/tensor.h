/* tensor.h: what an operator has computed, seen right after it: soon its place in the arena belongs to others.
 *
 *     tensor N      one inference on the loaded input; m-tensor-[N,bytes,CRC-32] of the output of operator N
 *     tensor N hex  the bytes instead: m-tensor-[hex], 32 a line
 */
#ifndef TENSOR_H
#define TENSOR_H

#include <stdint.h>

#include "command.h"
#include "model.h"

struct tensor_place {
    const int8_t *first;
    uint32_t bytes;
};

/* Of each operator's output; generated with the model. */
extern const struct tensor_place TENSOR_PLACES[MODEL_OPS];

void tensor_run(const struct words *words);

/* What `tensor` asked for, sent from within the inference. */
void tensor_show(void);

#endif
