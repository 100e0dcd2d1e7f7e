#include "input.h"

#include <stdbool.h>
#include <string.h>

#include "float_end.h"
#include "placement.h"

uint8_t input_buffer[INPUT_SENT_BYTES] PLACE_BULK;
struct load input_load;

#ifdef MODEL_INPUT_SCALE
static uint8_t tensor_bytes[MODEL_INPUT_BYTES] PLACE_BULK;
#else
#define tensor_bytes input_buffer
#endif

static bool is_tensor; /* the buffer holds what the tensor does, not what was sent */

static void convert(void)
{
#ifdef MODEL_INPUT_SCALE
    if (!is_tensor) {
        float_end_quantise(input_buffer, (int8_t *)tensor_bytes);
    }
#endif
    for (uint32_t index = 0; INPUT_IS_UINT8 && index < sizeof input_buffer; index++) {
        input_buffer[index] ^= 0x80u;
    }
    is_tensor = !is_tensor;
}

void input_as_sent(void)
{
    if (is_tensor) {
        convert();
    }
}

void input_as_tensor(void)
{
    if (!is_tensor) {
        convert();
    }
}

void input_was_placed(void)
{
    is_tensor = false;
}

void input_clear(void)
{
    is_tensor = false;
    input_load = (struct load){.bytes = input_buffer, .room = sizeof input_buffer};
    load_clear(&input_load);
}

void input_to_model(void)
{
#ifdef MODEL_INPUTS
    const uint8_t *bytes = tensor_bytes;
    for (uint32_t index = 0; index < MODEL_INPUTS; index++) {
        memcpy(model_input(index), bytes, MODEL_INPUT_SIZES[index]);
        bytes += MODEL_INPUT_SIZES[index];
    }
#else
    memcpy(model_input(), tensor_bytes, sizeof tensor_bytes);
#endif
}
