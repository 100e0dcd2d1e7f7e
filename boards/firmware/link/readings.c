#include "readings.h"

#include <stddef.h>

#include "bench.h"
#include "board.h"
#include "model.h"
#include "prof.h"
#include "text.h"

bool readings_allowed(void)
{
    if (board_trouble() == NULL) {
        return true;
    }
    command_put_error("Nothing is measured here: ", board_trouble());
    return false;
}

static void put_ticks(uint64_t ticks)
{
    text_put(",");
    text_put_decimal(ticks);
    text_put("]\r\n");
}

static void put_numbered(const char *head, uint32_t number, uint64_t ticks)
{
    text_put(head);
    text_put_decimal(number);
    put_ticks(ticks);
}

void readings_layers(const struct words *words)
{
    (void)words;
    if (!readings_allowed()) {
        return;
    }
    bench_infer_layers();
#if MODEL_FRONT_END
    text_put("m-layer-[front_end");
    put_ticks(prof_front_end_ticks());
#endif
    for (uint32_t index = 0; index < MODEL_OPS; index++) {
        put_numbered("m-layer-[", index, prof_ticks(index));
    }
}

void readings_burst(const struct words *words)
{
    uint32_t inferences = 0;
    if (!readings_allowed()) {
        return;
    }
    if (words->count < 2u || !command_decimal(words->at[1], &inferences) || inferences == 0u ||
        inferences > BENCH_MOST_LAPS) {
        command_put_error("A burst has 1 to 32 inferences", "");
        return;
    }
    put_numbered("m-burst-[", inferences, bench_burst(inferences));
    for (uint32_t lap = 0; lap < inferences; lap++) {
        put_numbered("m-lap-[", lap, bench_lap_ticks(lap));
    }
}

void readings_memory(const struct words *words)
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

void readings_clock(const struct words *words)
{
    (void)words;
    text_put("m-clock-[");
    text_put_decimal(board_clock_hz());
    text_put("]\r\n");
}

void readings_chip(const struct words *words)
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
