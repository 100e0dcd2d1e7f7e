#include "load.h"

#include <string.h>

void load_clear(struct load *load)
{
    memset(load->bytes, 0, load->room);
    load->announced = 0;
    load->loaded = 0;
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

enum load_status load_append(struct load *load, const uint8_t *bytes, uint32_t count)
{
    if (load->announced == 0u) {
        return LOAD_NONE;
    }
    if (count > load->announced - load->loaded) {
        return LOAD_TOO_LONG;
    }
    memcpy(&load->bytes[load->loaded], bytes, count);
    load->loaded += count;
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
    load->announced = 0;
    load->loaded = bytes;
    return LOAD_COMPLETE;
}
