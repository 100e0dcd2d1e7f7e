#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "bench.h"
#include "board.h"
#include "build_id.h"
#include "crc32.h"
#include "input.h"
#include "model.h"
#include "prof.h"
#include "text.h"

#define MAX_WORDS 4u /* the longest command has three; the fourth is found to be one too many */
#define BUFFER_LINE_BYTES 8u
#define OUTPUT_LINE_BYTES 32u
#define DEFAULT_INFERENCES 1u
#define DEFAULT_WARMUPS 10u

struct words {
    uint32_t count;
    char *at[MAX_WORDS];
};

struct command {
    const char *name;
    uint32_t most_words;
    void (*run)(const struct words *words);
};

static char line[PROTOCOL_COMMAND_CHARACTERS + 1u];
static uint32_t line_characters; /* may exceed the buffer by one: then the line was too long */

static void put_error(const char *text, const char *detail)
{
    text_put("e-[");
    text_put(text);
    text_put(detail);
    text_put("]\r\n");
}

static void put_bracketed(const char *head, const char *text)
{
    text_put(head);
    text_put(text);
    text_put("]\r\n");
}

/* Decimal digits only, below 10^9. */
static bool parse_decimal(const char *word, uint32_t *value)
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

static int hex_digit(char character)
{
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    const char lower = (char)(character | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static void run_name(const struct words *words)
{
    (void)words;
    put_bracketed("m-name-dut-[", board_name());
}

static void run_profile(const struct words *words)
{
    (void)words;
    text_put("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\n");
    put_bracketed("m-model-[", MODEL_NAME);
}

static void run_timestamp(const struct words *words)
{
    (void)words;
    bench_lap();
}

static void db_load(const struct words *words)
{
    uint32_t bytes = 0;
    if (words->count < 3u || !parse_decimal(words->at[2], &bytes) || bytes == 0u) {
        put_error("db load needs the number of bytes, above 0", "");
    } else if (input_begin(bytes) != INPUT_OK) {
        text_put("e-[Load of ");
        text_put_decimal(bytes);
        text_put(" bytes refused: the input has ");
        text_put_decimal(MODEL_INPUT_BYTES);
        text_put("]\r\n");
    } else {
        text_put("m-[Expecting ");
        text_put_decimal(bytes);
        text_put(" bytes]\r\n");
    }
}

static void db_print(void)
{
    const uint8_t *bytes = input_bytes();
    const uint32_t count = input_loaded_bytes();
    for (uint32_t index = 0; index < count; index++) {
        text_put(index % BUFFER_LINE_BYTES == 0u ? "m-buffer-" : "-");
        text_put_hex8(bytes[index]);
        if (index % BUFFER_LINE_BYTES == BUFFER_LINE_BYTES - 1u || index == count - 1u) {
            text_put("\r\n");
        }
    }
}

static void db_append(const char *digits)
{
    uint8_t bytes[PROTOCOL_COMMAND_CHARACTERS / 2u];
    uint32_t count = 0;
    if (strlen(digits) % 2u != 0u) {
        put_error("Insufficent number of hex digits", ""); /* the spelling is the protocol's */
        return;
    }
    for (; digits[0] != '\0'; digits += 2) {
        const int high = hex_digit(digits[0]);
        const int low = hex_digit(digits[1]);
        if (high < 0 || low < 0) {
            const char pair[] = {'\'', digits[0], digits[1], '\'', '\0'};
            put_error("Invalid hex digit ", pair);
            return;
        }
        bytes[count++] = (uint8_t)(high * 16 + low);
    }
    switch (input_append(bytes, count)) {
    case INPUT_COMPLETE:
        text_put("m-load-done\r\n");
        break;
    case INPUT_NO_LOAD:
        put_error("No load under way: send db load first", "");
        break;
    case INPUT_TOO_LONG:
        put_error("More bytes than db load announced", "");
        break;
    case INPUT_OK:
        break;
    }
}

static void run_db(const struct words *words)
{
    if (words->count < 2u) {
        put_error("db needs load, print or hex digits", "");
    } else if (strcmp(words->at[1], "load") == 0) {
        db_load(words);
    } else if (words->count > 2u) {
        put_error("Unexpected argument: ", words->at[2]);
    } else if (strcmp(words->at[1], "print") == 0) {
        db_print();
    } else {
        db_append(words->at[1]);
    }
}

static void run_results(const struct words *words)
{
    (void)words;
    const int8_t *output = bench_output();
    text_put("m-results-[");
    for (uint32_t index = 0; index < MODEL_OUTPUT_BYTES; index++) {
        text_put(index == 0u ? "" : ",");
        text_put_milli(output[index] - MODEL_OUTPUT_ZERO_POINT, MODEL_OUTPUT_MILLI_Q32);
    }
    text_put("]\r\n");
}

static void put_count(const char *head, uint32_t count)
{
    text_put(head);
    text_put_decimal(count);
    text_put("\r\n");
}

static void run_infer(const struct words *words)
{
    uint32_t inferences = DEFAULT_INFERENCES;
    uint32_t warmups = DEFAULT_WARMUPS;
    if (words->count > 1u && (!parse_decimal(words->at[1], &inferences) || inferences == 0u)) {
        put_error("Inference iterations must be >0", "");
        return;
    }
    if (words->count > 2u && !parse_decimal(words->at[2], &warmups)) {
        put_error("Not a number of warm-ups: ", words->at[2]);
        return;
    }
    put_count("m-warmup-start-", warmups);
    bench_infer(warmups);
    text_put("m-warmup-done\r\n");
    put_count("m-infer-start-", inferences);
    bench_lap();
    bench_infer(inferences);
    bench_lap();
    text_put("m-infer-done\r\n");
    run_results(words);
}

static void run_build(const struct words *words)
{
    (void)words;
    put_bracketed("m-build-[", BUILD_ID);
}

static void run_crc(const struct words *words)
{
    (void)words;
    text_put("m-crc-[");
    text_put_hex32(crc32(input_bytes(), input_loaded_bytes()));
    text_put("]\r\n");
}

static void run_output(const struct words *words)
{
    (void)words;
    const int8_t *output = bench_output();
    for (uint32_t index = 0; index < MODEL_OUTPUT_BYTES; index++) {
        if (index % OUTPUT_LINE_BYTES == 0u) {
            text_put("m-output-[");
        }
        text_put_hex8((uint8_t)output[index]);
        if (index % OUTPUT_LINE_BYTES == OUTPUT_LINE_BYTES - 1u || index == MODEL_OUTPUT_BYTES - 1u) {
            text_put("]\r\n");
        }
    }
}

static void run_layers(const struct words *words)
{
    (void)words;
    bench_infer_layers();
    for (uint32_t index = 0; index < MODEL_OPS; index++) {
        text_put("m-layer-[");
        text_put_decimal(index);
        text_put(",");
        text_put_decimal(prof_ticks(index));
        text_put("]\r\n");
    }
}

static void run_memory(const struct words *words)
{
    (void)words;
    text_put("m-memory-[");
    text_put_decimal(board_stack_high_water_bytes());
    text_put(",");
    text_put_decimal(board_stack_bytes());
    text_put(",");
    text_put_decimal(MODEL_ARENA_BYTES);
    text_put("]\r\n");
}

static void run_clock(const struct words *words)
{
    (void)words;
    text_put("m-clock-[");
    text_put_decimal(board_clock_hz());
    text_put("]\r\n");
}

static void run_reset(const struct words *words)
{
    (void)words;
    board_reset();
}

static const struct command COMMANDS[] = {
    {"name", 1, run_name},     {"profile", 1, run_profile}, {"timestamp", 1, run_timestamp}, {"db", 3, run_db},
    {"infer", 3, run_infer},   {"results", 1, run_results}, {"build", 1, run_build},         {"crc", 1, run_crc},
    {"output", 1, run_output}, {"layers", 1, run_layers},   {"memory", 1, run_memory},       {"clock", 1, run_clock},
    {"reset", 1, run_reset},
};

/* Split in place at spaces; words beyond MAX_WORDS are dropped, the count tells that there were too many. */
static struct words split(char *text)
{
    struct words words = {0};
    while (*text != '\0' && words.count < MAX_WORDS) {
        if (*text == ' ') {
            *text++ = '\0';
            continue;
        }
        words.at[words.count++] = text;
        while (*text != '\0' && *text != ' ') {
            text++;
        }
    }
    if (*text == ' ') {
        *text = '\0';
    }
    return words;
}

static void run(const struct words *words)
{
    const char *name = words->count > 0u ? words->at[0] : "";
    for (size_t index = 0; index < sizeof COMMANDS / sizeof COMMANDS[0]; index++) {
        const struct command *command = &COMMANDS[index];
        if (strcmp(name, command->name) != 0) {
            continue;
        }
        if (words->count > command->most_words) {
            put_error("Unexpected argument: ", words->at[command->most_words]);
        } else {
            command->run(words);
        }
        return;
    }
    put_error("Unknown command: ", name);
}

void protocol_boot(void)
{
    line_characters = 0;
    input_clear();
    text_put("m-timestamp-mode-performance\r\n");
    bench_lap();
    text_put("m-init-done\r\n");
    text_put("m-ready\r\n");
}

void protocol_receive(uint8_t byte)
{
    if (byte != '%') {
        if (line_characters < PROTOCOL_COMMAND_CHARACTERS) {
            /* What cannot be printed matches no command and shall not tear a line of our answer. */
            line[line_characters] = byte >= ' ' && byte <= '~' ? (char)byte : '?';
        }
        line_characters += line_characters <= PROTOCOL_COMMAND_CHARACTERS ? 1u : 0u;
        return;
    }
    const bool too_long = line_characters > PROTOCOL_COMMAND_CHARACTERS;
    line[too_long ? 0u : line_characters] = '\0';
    line_characters = 0;
    if (too_long) {
        put_error("Command longer than 80 characters", "");
    } else {
        const struct words words = split(line);
        run(&words);
    }
    text_put("m-ready\r\n");
}
