#include "command.h"

#include <stddef.h>
#include <string.h>

#include "bench.h"
#include "float_end.h"
#include "input.h"
#include "model.h"
#include "text.h"

#define HEX_LINE_BYTES 32u

/* Of the first output. */
#ifndef MODEL_RESULT_TYPE
#define MODEL_RESULT_TYPE int8_t
#endif
#ifndef MODEL_RESULTS
#define MODEL_RESULTS MODEL_OUTPUT_BYTES
#endif

void command_put_error(const char *text, const char *detail)
{
    text_put("e-[");
    text_put_bracketed(text, detail);
}

void command_put_hex(const char *head, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t index = 0; index < count; index++) {
        if (index % HEX_LINE_BYTES == 0u) {
            text_put(head);
        }
        text_put_hex8(bytes[index]);
        if (index % HEX_LINE_BYTES == HEX_LINE_BYTES - 1u || index == count - 1u) {
            text_put("]\r\n");
        }
    }
}

void command_put_results(void)
{
    const int8_t *output = bench_output();
    text_put("m-results-[");
#ifdef MODEL_ANSWERS_ERROR
    const uint64_t error = float_end_error_thousandths(input_buffer, output);
    if (error == UINT64_MAX) {
        text_put("inf");
    } else {
        text_put_thousandths(error);
    }
#else
    for (uint32_t index = 0; index < MODEL_RESULTS; index++) {
        MODEL_RESULT_TYPE value;
        memcpy(&value, &output[index * sizeof value], sizeof value);
        text_put(index == 0u ? "" : ",");
        text_put_milli(value - MODEL_OUTPUT_ZERO_POINT, MODEL_OUTPUT_MILLI_Q32);
    }
#endif
    text_put("]\r\n");
}

bool command_decimal(const char *word, uint32_t *value)
{
    const size_t digits = strlen(word);
    if (digits == 0u || digits > 9u) {
        return false;
    }
    *value = 0;
    for (; *word != '\0'; word++) {
        if (*word < '0' || *word > '9') {
            return false;
        }
        *value = *value * 10u + (uint32_t)(*word - '0');
    }
    return true;
}

/* The N of `NAME load N`; 0 after an error message. */
static uint32_t announced_bytes(struct load *load, const struct words *words)
{
    uint32_t bytes = 0;
    load->is_broken = true; /* until one is begun or placed */
    if (words->count < 3u || !command_decimal(words->at[2], &bytes) || bytes == 0u) {
        command_put_error("Number of bytes needed, above 0", "");
        return 0;
    }
    if (bytes > load->room) {
        text_put_count("e-[Load of ", bytes, " bytes refused: the input has ");
        text_put_field("", load->room);
        return 0;
    }
    return bytes;
}

void command_begin_load(struct load *load, const struct words *words)
{
    const uint32_t bytes = announced_bytes(load, words);
    if (bytes != 0u && load_begin(load, bytes) == LOAD_OK) {
        text_put_count("m-[Expecting ", bytes, " bytes]\r\n");
    }
}

static void put_done(void)
{
    text_put("m-load-done\r\n");
}

bool command_place_load(struct load *load, const struct words *words)
{
    const uint32_t bytes = announced_bytes(load, words);
    if (bytes == 0u || load_place(load, bytes) != LOAD_COMPLETE) {
        return false;
    }
    put_done();
    return true;
}

void command_append(struct load *load, const uint8_t *bytes, uint32_t count)
{
    const enum load_status status = load_append(load, bytes, count);
    if (status == LOAD_COMPLETE) {
        put_done();
    } else if (status == LOAD_NONE) {
        command_put_error("No load under way: send load first", "");
    }
}
