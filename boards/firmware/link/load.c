#include "load.h"

#include <string.h>

void load_clear(struct load *load)
{
    memset(load->bytes, 0, load->room);
    load->announced = 0;
    load->loaded = 0;
    load->is_broken = false;
}

enum load_status load_begin(struct load *load, uint32_t bytes)
{
    if (bytes == 0u || bytes > load->room) {
        return LOAD_TOO_LONG;
    }
    load_clear(load);
    load->announced = bytes;
    return LOAD_OK;
}

bool load_is_whole(const struct load *load)
{
    return load->announced == 0u && !load->is_broken;
}

enum load_status load_append(struct load *load, const uint8_t *bytes, uint32_t count)
{
    if (load->announced == 0u) {
        load->is_broken = true; /* `load` itself was lost, and what the buffer holds is an older input */
        return LOAD_NONE;
    }
    const uint32_t missing = load->announced - load->loaded;
    const uint32_t taken = count < missing ? count : missing;
    memcpy(&load->bytes[load->loaded], bytes, taken);
    load->loaded += taken;
    if (load->loaded < load->announced) {
        return LOAD_OK;
    }
    load->announced = 0;
    return LOAD_COMPLETE;
}

enum load_status load_place(struct load *load, uint32_t bytes)
{
    if (bytes == 0u || bytes > load->room) {
        return LOAD_TOO_LONG;
    }
    memset(&load->bytes[bytes], 0, load->room - bytes);
    load->is_broken = false;
    load->announced = 0;
    load->loaded = bytes;
    return LOAD_COMPLETE;
}
