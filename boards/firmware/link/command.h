/* command.h: what the commands of protocol.c and of audio/commands.c share: words, errors, numbers, loads. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "load.h"

#define COMMAND_MAX_WORDS 4u /* the longest command has three; the fourth is found to be one too many */

struct words {
    uint32_t count;
    char *at[COMMAND_MAX_WORDS];
};

struct command {
    char name[11]; /* here, not pointed at: small firmware counts its bytes */
    uint8_t most_words;
    void (*run)(const struct words *words);
};

/* `e-[TEXTDETAIL]` */
void command_put_error(const char *text, const char *detail);

/* The bytes in hex, 32 a line, each line `HEAD...]`. */
void command_put_hex(const char *head, const uint8_t *bytes, uint32_t count);

/* `m-results-[...]`: the output of the last inference, dequantised, or how far it is from the input (float_end.h). */
void command_put_results(void);

/* Decimal digits only, below 10^9. */
bool command_decimal(const char *word, uint32_t *value);

/* `NAME load N` and `NAME place N`. */
void command_begin_load(struct load *load, const struct words *words);
bool command_place_load(struct load *load, const struct words *words); /* false after an error message */

/* What `NAME HH..` has decoded. */
void command_append(struct load *load, const uint8_t *bytes, uint32_t count);

#endif
