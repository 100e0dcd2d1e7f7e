#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "baud.h"
#include "bench.h"
#include "board.h"
#include "build_id.h"
#include "command.h"
#include "crc32.h"
#include "input.h"
#include "model.h"
#include "readings.h"
#include "reply_check.h"
#include "ring.h"
#include "tensor.h"
#include "text.h"

#if MODEL_FRONT_END
#include "audio/commands.h"
#endif

#ifndef BRINGUP_STAGE
#define BRINGUP_STAGE 0 /* no image for a first day */
#endif
#if BRINGUP_STAGE
#include "bringup/commands.h"
#endif

#define BUFFER_LINE_BYTES 8u
#define DEFAULT_INFERENCES 1u
#define DEFAULT_WARMUPS 10u

static char line[PROTOCOL_LINE_CHARACTERS + 1u];
static uint32_t line_characters; /* may exceed the longest line by one: then it was too long */
static bool line_damaged;

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
    text_put_bracketed("m-name-dut-[", board_name());
}

static void run_help(const struct words *words);

static void run_profile(const struct words *words)
{
    (void)words;
    text_put("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[" MODEL_NAME "]\r\n");
}

static void run_timestamp(const struct words *words)
{
    (void)words;
    bench_lap();
}

static void db_print(void)
{
    const uint8_t *bytes = input_load.bytes;
    const uint32_t count = input_load.loaded;
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
        command_put_error("Insufficent number of hex digits", ""); /* the spelling is the protocol's */
        return;
    }
    /* What comes behind the last byte announced is not even looked at, as in the protocol's own firmware. */
    const uint32_t wanted = input_load.announced == 0u ? sizeof bytes : input_load.announced - input_load.loaded;
    for (; digits[0] != '\0' && count < wanted; digits += 2) {
        const int high = hex_digit(digits[0]);
        const int low = hex_digit(digits[1]);
        if (high < 0 || low < 0) {
            const char pair[] = {'\'', digits[0], digits[1], '\'', '\0'};
            command_put_error("Invalid hex digit ", pair);
            return;
        }
        bytes[count++] = (uint8_t)(high * 16 + low);
    }
    command_append(&input_load, bytes, count);
}

static void run_db(const struct words *words)
{
    const char *const what = words->count > 1u ? words->at[1] : "0"; /* a digit too few, like any odd number of them */
    if (strcmp(what, "place") == 0) {
        if (command_place_load(&input_load, words)) {
            input_was_placed();
        }
        return;
    }
    input_as_sent();
    if (strcmp(what, "load") == 0) {
        command_begin_load(&input_load, words);
    } else if (words->count > 2u) {
        command_put_error("Unexpected argument: ", words->at[2]);
    } else if (strcmp(what, "print") == 0) {
        db_print();
    } else {
        db_append(what);
    }
}

static void run_results(const struct words *words)
{
    (void)words;
    command_put_results();
}

static void run_infer(const struct words *words)
{
    if (board_trouble() != NULL) { /* on a clock that is not the described one nothing is a measurement */
        command_put_error("Not measured: ", board_trouble());
        return;
    }
    if (!load_is_whole(&input_load)) {
        command_put_error("Input incomplete: load it again", "");
        return;
    }
    uint32_t inferences = DEFAULT_INFERENCES;
    uint32_t warmups = DEFAULT_WARMUPS;
    if (words->count > 1u && (!command_decimal(words->at[1], &inferences) || inferences == 0u)) {
        command_put_error("Inference iterations must be >0", "");
        return;
    }
    if (words->count > 2u && !command_decimal(words->at[2], &warmups)) {
        command_put_error("Not a number of warm-ups: ", words->at[2]);
        return;
    }
    input_as_tensor();
    text_put_count("m-warmup-start-", warmups, "\r\n");
    bench_infer(warmups);
    text_put_count("m-warmup-done\r\nm-infer-start-", inferences, "\r\n");
    bench_lap();
    bench_infer(inferences);
    bench_lap();
    text_put("m-infer-done\r\n");
    command_put_results();
}

static void run_build(const struct words *words)
{
    (void)words;
    text_put("m-build-[" BUILD_ID "]\r\n");
}

static void run_crc(const struct words *words)
{
    (void)words;
    input_as_sent();
    text_put("m-crc-[");
    text_put_hex32(crc32(input_load.bytes, input_load.loaded));
    text_put("]\r\n");
}

static void run_output(const struct words *words)
{
    (void)words;
    command_put_hex("m-output-[", (const uint8_t *)bench_output(), MODEL_OUTPUT_BYTES);
}

static void run_baud(const struct words *words)
{
    uint32_t baud = baud_now();
    if (words->count > 1u && strcmp(words->at[1], "ok") == 0) {
        baud_confirm();
        return;
    }
    if (words->count > 1u) {
        if (!command_decimal(words->at[1], &baud) || !board_can_baud(baud)) {
            command_put_error("Baud rate refused: ", words->at[1]);
            return;
        }
        baud_request(baud);
    }
    text_put_field("m-baud-[", baud);
}

static void run_errors(const struct words *words)
{
    (void)words;
    text_put_field("m-errors-[", board_receive_errors());
}

static void run_reset(const struct words *words)
{
    (void)words;
    board_reset();
}

static const struct command COMMANDS[] = {
    {"help", 1, run_help},
    {"name", 1, run_name},
    {"profile", 1, run_profile},
    {"timestamp", 1, run_timestamp},
    {"db", 3, run_db},
    {"infer", 3, run_infer},
    {"results", 1, run_results},
    {"build", 1, run_build},
    {"crc", 1, run_crc},
    {"output", 1, run_output},
    {"layers", 1, readings_layers},
    {"laps", 1, readings_laps},
    {"memory", 1, readings_memory},
    {"clock", 1, readings_clock},
    {"baud", 2, run_baud},
    {"errors", 1, run_errors},
    {"reset", 1, run_reset},
    {"tensor", 3, tensor_run},
    {"check", 1, reply_check_run},
};

static void put_names(const struct command *table, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        text_put_bracketed("m-help-[", table[index].name);
    }
}

static void run_help(const struct words *words)
{
    (void)words;
    put_names(COMMANDS, sizeof COMMANDS / sizeof COMMANDS[0]);
#if MODEL_FRONT_END
    put_names(AUDIO_COMMANDS, AUDIO_COMMAND_COUNT);
#endif
#if BRINGUP_STAGE
    put_names(BRINGUP_COMMANDS, BRINGUP_COMMAND_COUNT);
#endif
}

/* Split in place at spaces; words beyond COMMAND_MAX_WORDS are dropped, the count tells that there were too many. */
static struct words split(char *text)
{
    struct words words = {0};
    while (*text != '\0' && words.count < COMMAND_MAX_WORDS) {
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

static const struct command *named(const char *name, const struct command *table, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        if (strcmp(name, table[index].name) == 0) {
            return &table[index];
        }
    }
    return NULL;
}

static void run(const struct words *words)
{
    const char *name = words->count > 0u ? words->at[0] : "";
    const struct command *command = named(name, COMMANDS, sizeof COMMANDS / sizeof COMMANDS[0]);
#if MODEL_FRONT_END
    command = command == NULL ? named(name, AUDIO_COMMANDS, AUDIO_COMMAND_COUNT) : command;
#endif
#if BRINGUP_STAGE
    command = command == NULL ? named(name, BRINGUP_COMMANDS, BRINGUP_COMMAND_COUNT) : command;
#endif
    if (command == NULL) {
        command_put_error("Unknown command: ", name);
    } else if (words->count > command->most_words) {
        command_put_error("Unexpected argument: ", words->at[command->most_words]);
    } else {
        command->run(words);
    }
}

/* Audio comes in long lines; a command of the stock protocol keeps its limit. */
static uint32_t most_characters(void)
{
    return strncmp(line, "audio ", 6) == 0 ? PROTOCOL_LINE_CHARACTERS : PROTOCOL_COMMAND_CHARACTERS;
}

static void put_damaged(void)
{
    text_put_count("e-[Line damaged on its way here, ", board_receive_errors(), " bytes since start]\r\n");
}

static void put_too_long(uint32_t limit)
{
    text_put_count("e-[Command longer than ", limit, " characters]\r\n");
}

void protocol_boot(void)
{
    protocol_forget_line();
    baud_start();
    input_clear();
#if MODEL_FRONT_END
    audio_commands_start();
#endif
    text_put(BOARD_MEASURES_ENERGY ? "m-timestamp-mode-energy\r\n" : "m-timestamp-mode-performance\r\n");
    if (board_was_hung()) {
        text_put("m-[reset by watchdog]\r\n");
    }
    if (board_trouble() != NULL) {
        text_put_bracketed("m-[trouble: ", board_trouble());
    }
    if (board_option() != NULL) {
        text_put_bracketed("m-[option: ", board_option());
    }
    if (!BOARD_MEASURES_ENERGY) {
        bench_lap();
    }
    text_put("m-init-done\r\nm-ready\r\n");
}

void protocol_forget_line(void)
{
    line_characters = 0;
    line_damaged = false;
}

void protocol_receive(uint16_t received)
{
    const uint8_t byte = (uint8_t)received;
    line_damaged = line_damaged || (received & RING_DAMAGED) != 0u;
    if (byte != '%') {
        if (line_characters < PROTOCOL_LINE_CHARACTERS) {
            /* What cannot be printed matches no command and shall not tear a line of our answer. */
            line[line_characters] = byte >= ' ' && byte <= '~' ? (char)byte : '?';
        }
        line_characters += line_characters <= PROTOCOL_LINE_CHARACTERS ? 1u : 0u;
        return;
    }
    const uint32_t characters = line_characters;
    const uint32_t limit = most_characters();
    const bool damaged = line_damaged;
    protocol_forget_line();
    reply_check_start(line, characters);
    if (damaged) {
        put_damaged();
    } else if (characters > limit) {
        put_too_long(limit);
    } else {
        line[characters] = '\0';
        const struct words words = split(line);
        run(&words);
    }
    text_put("m-ready\r\n");
    baud_change();
}
