#include "bringup/commands.h"

#include <stddef.h>

#include "board.h"
#include "crc32.h"
#include "text.h"

extern uint32_t _fast_free[], _fast_end[], _bulk_free[], _bulk_end[]; /* sections.ld */
extern const uint8_t _code_start[], _image_end[];

static void put_fields(const char *head, const uint32_t *fields, uint32_t count)
{
    text_put(head);
    for (uint32_t index = 0; index < count; index++) {
        text_put(index == 0u ? "" : ",");
        text_put_hex32(fields[index]);
    }
    text_put("]\r\n");
}

/* Each word holds its own address, then the opposite: finds bits that stick and address lines that are tied together. */
static void try_memory(uint32_t *first, const uint32_t *end)
{
    uint32_t wrong = 0;
    uint32_t first_wrong = 0;
    for (uint32_t flip = 0;; flip = UINT32_MAX) {
        for (volatile uint32_t *word = first; word < end; word++) {
            *word = (uint32_t)word ^ flip;
        }
        board_alive();
        for (volatile uint32_t *word = first; word < end; word++) {
            if (*word != ((uint32_t)word ^ flip)) {
                first_wrong = wrong == 0u ? (uint32_t)word : first_wrong;
                wrong++;
            }
        }
        if (flip != 0u) {
            break;
        }
    }
    const uint32_t fields[] = {(uint32_t)first, (uint32_t)end - (uint32_t)first, wrong, first_wrong};
    put_fields("m-ram-[", fields, 4);
}

static void run_chip(const struct words *words)
{
    struct board_register found;
    (void)words;
    for (uint32_t index = 0; board_chip(index, &found); index++) {
        text_put("m-chip-[");
        text_put(found.name);
        text_put(",");
        text_put_hex32(found.value);
        text_put("]\r\n");
    }
}

static void run_ram(const struct words *words)
{
    (void)words;
    try_memory(_fast_free, _fast_end);
    try_memory(_bulk_free, _bulk_end);
}

static void run_flash(const struct words *words)
{
    (void)words;
    const uint32_t bytes = (uint32_t)(_image_end - _code_start);
    const uint32_t fields[] = {(uint32_t)_code_start, bytes, crc32(_code_start, bytes)};
    put_fields("m-flash-[", fields, 3);
}

static void run_fault(const struct words *words)
{
    (void)words;
    __builtin_trap();
}

static void run_hang(const struct words *words)
{
    (void)words;
    for (;;) {
        __asm volatile("");
    }
}

const struct command BRINGUP_COMMANDS[] = {
    {"chip", 1, run_chip},
    {"ram", 1, run_ram},
    {"flash", 1, run_flash},
    {"fault", 1, run_fault},
    {"hang", 1, run_hang},
};
const uint32_t BRINGUP_COMMAND_COUNT = sizeof BRINGUP_COMMANDS / sizeof BRINGUP_COMMANDS[0];
