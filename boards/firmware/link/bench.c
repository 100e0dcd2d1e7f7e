#include "bench.h"

#include <string.h>

#include "board.h"
#include "divide.h"
#include "input.h"
#include "model.h"
#include "placement.h"
#include "prof.h"
#include "text.h"

#if MODEL_FRONT_END
#include "audio/audio.h"
#include "audio/mfcc.h"
#endif

uint64_t bench_lap_ends[BENCH_MOST_LAPS + 1u];
uint32_t bench_laps;

static uint64_t paused_ticks;
#if MODEL_OUTPUT_BYTES > 1024u
static int8_t output[MODEL_OUTPUT_BYTES] PLACE_BULK;
#else
static int8_t output[MODEL_OUTPUT_BYTES];
#endif

static void keep_output(void)
{
#ifdef MODEL_OUTPUTS
    int8_t *place = output;
    for (uint32_t index = 0; index < MODEL_OUTPUTS; index++) {
        memcpy(place, model_output(index), MODEL_OUTPUT_SIZES[index]);
        place += MODEL_OUTPUT_SIZES[index];
    }
#else
    memcpy(output, model_output(), sizeof output);
#endif
}

void bench_lap(void)
{
    if (BOARD_MEASURES_ENERGY) {
        board_pulse();
        return;
    }
    const uint64_t stopped = board_ticks();
    uint64_t lap = stopped - paused_ticks;
    (void)divide(&lap, board_clock_hz() / 1000000u);
    text_put("m-lap-us-");
    text_put_decimal(lap);
    text_put("\r\n");
    paused_ticks += board_ticks() - stopped;
}

static void note_lap(void)
{
    const uint64_t now = board_ticks();
    if (bench_laps <= BENCH_MOST_LAPS) {
        bench_lap_ends[bench_laps++] = now;
    }
}

void bench_infer(uint32_t times)
{
    input_as_tensor();
    bench_laps = 0;
#ifdef MODEL_HAS_STATE
    model_reset();
#endif
    for (uint32_t run = 0; run < times; run++) {
        note_lap();
        input_to_model();
        model_invoke();
        board_alive();
    }
    note_lap();
    if (times > 0u) {
        keep_output();
    }
}

void bench_invoke(void)
{
    model_invoke();
    keep_output();
}

#if MODEL_FRONT_END
void bench_features(void)
{
    prof_mark_front_end();
    mfcc_clip(audio_buffer, model_input());
}

void bench_listen(void)
{
    bench_features();
    bench_invoke();
}
#endif

void bench_infer_layers(void)
{
    prof_start();
#if MODEL_FRONT_END
    bench_features();
#endif
    bench_infer(1);
    prof_stop();
}

const int8_t *bench_output(void)
{
    return output;
}
