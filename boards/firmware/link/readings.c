#include "readings.h"

#include "bench.h"
#include "board.h"
#include "model.h"
#include "prof.h"
#include "text.h"

/* Not inlined: small firmware counts its bytes. */
__attribute__((noinline)) static void put_numbered(const char *head, uint32_t number, uint64_t ticks)
{
    text_put(head);
    text_put_decimal(number);
    text_put_field(",", ticks);
}

void readings_layers(const struct words *words)
{
    (void)words;
    bench_infer_layers();
#if MODEL_FRONT_END
    text_put("m-layer-[front_end");
    text_put_field(",", prof_front_end_ticks());
#endif
    for (uint32_t index = 0; index < MODEL_OPS; index++) {
        put_numbered("m-layer-[", index, prof_ticks(index));
    }
}

void readings_laps(const struct words *words)
{
    (void)words;
    for (uint32_t lap = 0; lap < bench_laps; lap++) {
        put_numbered("m-lap-[", lap, bench_lap_ends[lap]);
    }
}

void readings_memory(const struct words *words)
{
    (void)words;
    text_put("m-memory-[");
    text_put_decimal(board_stack_high_water_bytes());
    text_put(",");
    text_put_decimal(board_stack_bytes());
    text_put_field(",", MODEL_ARENA_BYTES);
}

void readings_clock(const struct words *words)
{
    (void)words;
    text_put_field("m-clock-[", board_clock_hz());
}
