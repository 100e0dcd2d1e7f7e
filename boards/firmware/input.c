#include "input.h"

#include <string.h>

#include "model.h"
#include "placement.h"

static uint8_t buffer[MODEL_INPUT_BYTES] PLACE_BULK;
static uint32_t announced; /* bytes of the load under way, 0 for none */
static uint32_t loaded;

void input_clear(void)
{
    memset(buffer, 0, sizeof buffer);
    announced = 0;
    loaded = 0;
}

enum input_status input_begin(uint32_t bytes)
{
    if (bytes == 0u || bytes > sizeof buffer) {
        return INPUT_TOO_LONG;
    }
    input_clear();
    announced = bytes;
    return INPUT_OK;
}

enum input_status input_append(const uint8_t *bytes, uint32_t count)
{
    if (announced == 0u) {
        return INPUT_NO_LOAD;
    }
    if (count > announced - loaded) {
        return INPUT_TOO_LONG;
    }
    memcpy(&buffer[loaded], bytes, count);
    loaded += count;
    if (loaded < announced) {
        return INPUT_OK;
    }
    announced = 0;
    return INPUT_COMPLETE;
}

const uint8_t *input_bytes(void)
{
    return buffer;
}

uint32_t input_loaded_bytes(void)
{
    return loaded;
}

void input_to_model(void)
{
    memcpy(model_input(), buffer, sizeof buffer);
}
