#include "reply_check.h"

#include <stdbool.h>
#include <string.h>

#include "crc32.h"
#include "text.h"

static const char CHECK[] = "check";
static uint32_t state = CRC32_START;
static bool paused; /* the reply to `check` does not count */

void reply_check_start(const char *command, uint32_t characters)
{
    paused = characters == sizeof CHECK - 1u && memcmp(command, CHECK, sizeof CHECK - 1u) == 0;
    if (!paused) {
        state = CRC32_START;
    }
}

void reply_check_add(uint8_t byte)
{
    if (!paused) {
        state = crc32_add(state, byte);
    }
}

void reply_check_run(const struct words *words)
{
    (void)words;
    text_put("m-check-[");
    text_put_hex32(crc32_end(state));
    text_put("]\r\n");
}
