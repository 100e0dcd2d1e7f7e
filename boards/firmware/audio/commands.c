#include "commands.h"

#include <string.h>

#include "audio.h"
#include "base64.h"
#include "bench.h"
#include "board.h"
#include "crc32.h"
#include "model.h"
#include "protocol.h"
#include "text.h"

#if MODEL_FRONT_END == MODEL_FRONT_END_STREAM
#include "stream.h"
#endif

static void audio_append(const char *digits)
{
    uint8_t bytes[PROTOCOL_LINE_CHARACTERS / 4u * 3u];
    uint32_t count = 0;
    if (!base64_decode(digits, bytes, sizeof bytes, &count)) {
        command_put_error("Not base64", "");
    } else {
        command_append(&audio_load, bytes, count);
    }
}

static void run_audio(const struct words *words)
{
    if (words->count < 2u) {
        command_put_error("audio needs load, place, crc or base64", "");
    } else if (strcmp(words->at[1], "load") == 0) {
        command_begin_load(&audio_load, words);
    } else if (strcmp(words->at[1], "place") == 0) {
        (void)command_place_load(&audio_load, words);
    } else if (words->count > 2u) {
        command_put_error("Unexpected argument: ", words->at[2]);
    } else if (strcmp(words->at[1], "crc") == 0) {
        text_put("m-crc-[");
        text_put_hex32(crc32(audio_load.bytes, audio_load.loaded));
        text_put("]\r\n");
    } else {
        audio_append(words->at[1]);
    }
}

static void run_features(const struct words *words)
{
    (void)words;
    bench_features();
    command_put_hex("m-features-[", (const uint8_t *)model_input(), MODEL_INPUT_BYTES);
}

static uint32_t largest_output(void)
{
    const int8_t *output = bench_output();
    uint32_t best = 0;
    for (uint32_t index = 1; index < MODEL_OUTPUT_BYTES; index++) {
        best = output[index] > output[best] ? index : best;
    }
    return best;
}

static void run_listen(const struct words *words)
{
    (void)words;
    bench_listen();
    text_put("m-word-[");
    text_put_decimal(largest_output());
    text_put("]\r\n");
    command_put_results();
}

#if MODEL_FRONT_END == MODEL_FRONT_END_STREAM
static void put_frame(void)
{
    const int8_t *frame = stream_newest_frame();
    text_put("m-frame-[");
    text_put_decimal(stream_hops());
    text_put(",");
    for (uint32_t index = 0; index < FRONT_END_COEFFICIENTS; index++) {
        text_put_hex8((uint8_t)frame[index]);
    }
    text_put("]\r\n");
}

static void put_sums(void)
{
    const uint32_t *sums = stream_sums();
    text_put("m-sums-[");
    text_put_decimal(stream_hops());
    for (uint32_t index = 0; index < MODEL_OUTPUT_BYTES; index++) {
        text_put(",");
        text_put_decimal(sums[index]);
    }
    text_put("]\r\n");
}

static void put_detection(const struct stream_detection *detection)
{
    text_put("m-detection-[");
    text_put_decimal(detection->hop);
    text_put(",");
    text_put_decimal(detection->word);
    text_put(",");
    text_put_decimal(detection->sum);
    text_put("]\r\n");
}

static uint64_t busy_ticks; /* since `start` */
static bool is_listening;

static void put_heard(void)
{
    text_put("m-heard-[");
    text_put_decimal(stream_hops());
    text_put_field(",", stream_detections());
}

static void run_start(const struct words *words)
{
    (void)words;
    stream_start();
    busy_ticks = 0;
    is_listening = true;
    bench_lap();
}

static void run_stop(const struct words *words)
{
    (void)words;
    if (!is_listening) { /* the runner stops before it starts, in case somebody had started */
        return;
    }
    is_listening = false;
    bench_lap();
    put_heard();
    text_put_field("m-busy-[", busy_ticks);
}

static void hear(bool trace)
{
    const uint32_t samples = audio_load.loaded / (uint32_t)sizeof audio_buffer[0];
    uint32_t heard = 0;
    while (heard < samples) {
        struct stream_detection detection;
        uint32_t taken = 0;
        const uint64_t started = board_ticks();
        const enum stream_event event = stream_hear(&audio_buffer[heard], samples - heard, &taken, &detection);
        busy_ticks += board_ticks() - started;
        board_alive();
        heard += taken;
        if (trace && event != STREAM_WAITS) {
            put_frame();
        }
        if (trace && event >= STREAM_RUN) {
            put_sums();
        }
        if (event == STREAM_DETECTED) {
            put_detection(&detection);
        }
    }
    put_heard();
}

static void run_stream(const struct words *words)
{
    const char *what = words->count > 1u ? words->at[1] : "";
    if (strcmp(what, "start") == 0) {
        stream_start();
    } else if (strcmp(what, "feed") == 0) {
        hear(false);
    } else if (strcmp(what, "trace") == 0) {
        hear(true);
    } else {
        command_put_error("stream needs start, feed or trace", "");
    }
}
#endif

void audio_commands_start(void)
{
    audio_clear();
#if MODEL_FRONT_END == MODEL_FRONT_END_STREAM
    stream_start();
#endif
}

const struct command AUDIO_COMMANDS[] = {
    {"audio", 3, run_audio},
    {"features", 1, run_features},
    {"listen", 1, run_listen},
#if MODEL_FRONT_END == MODEL_FRONT_END_STREAM
    {"stream", 2, run_stream},
    {"start", 1, run_start},
    {"stop", 1, run_stop},
#endif
};
const uint32_t AUDIO_COMMAND_COUNT = sizeof AUDIO_COMMANDS / sizeof AUDIO_COMMANDS[0];
