#include "input.h"

#include <string.h>

#include "placement.h"

uint8_t input_buffer[MODEL_INPUT_BYTES] PLACE_BULK;
struct load input_load;

void input_clear(void)
{
    input_load = (struct load){.bytes = input_buffer, .room = sizeof input_buffer};
    load_clear(&input_load);
}

void input_to_model(void)
{
    memcpy(model_input(), input_buffer, sizeof input_buffer);
}
