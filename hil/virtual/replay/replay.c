/* replay.c: touches of several ops, one op after the other, through caches of some size.
 *
 * Every op's touches are of addresses where it was traced; its pieces say where these addresses are now. The ops run
 * `passes` times, and the last time counts, as in the profiler.
 */
#include "../plugin/cache_model.h"
#include "../plugin/trace_model.h"

#include <stdlib.h>

#define FIGURES 6u

enum figure { FLASH_CODE, RAM_CODE, FLASH_DATA, RAM_LOAD, RAM_STORE, WRITE_BACK };
enum memory_kind { UNCACHED = 0, FLASH = 1, RAM = 2 };

struct piece {
    uint32_t start;
    uint32_t end;
    uint32_t now; /* where its first byte is */
    uint32_t kind;
};

struct shape {
    uint32_t size_bytes;
    uint32_t ways;
    uint32_t line_bytes;
};

struct op {
    const uint32_t *events;
    uint64_t event_count;
    const struct piece *pieces; /* in the order of their addresses */
    uint64_t piece_count;
};

/* The piece that holds an address; `near` is where it was found last. NULL: none. */
static const struct piece *piece_of(const struct op *op, uint32_t address, const struct piece *near)
{
    if (near != NULL && address - near->start < near->end - near->start) {
        return near;
    }
    uint64_t low = 0;
    uint64_t high = op->piece_count;
    while (low < high) {
        const uint64_t middle = (low + high) / 2u;
        if (op->pieces[middle].end <= address) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    const bool is_inside = low < op->piece_count && op->pieces[low].start <= address;
    return is_inside ? &op->pieces[low] : NULL;
}

static void run(const struct op *op, struct cache *code, struct cache *data, uint64_t *figures)
{
    const struct piece *near[TRACE_REGION] = {NULL};
    for (uint64_t i = 0; i < op->event_count; i++) {
        const uint32_t event = op->events[i] & 3u;
        const uint32_t address = op->events[i] & ~3u;
        if (event == TRACE_REGION) {
            continue;
        }
        const struct piece *const piece = piece_of(op, address, near[event]);
        if (piece == NULL || piece->kind == UNCACHED) {
            continue;
        }
        near[event] = piece;
        const uint32_t now = piece->now + (address - piece->start);
        const bool is_flash = piece->kind == FLASH;
        if (event == TRACE_CODE) {
            figures[is_flash ? FLASH_CODE : RAM_CODE] += cache_touch(code, now / code->line_bytes, false).filled;
            continue;
        }
        const struct cache_outcome outcome = cache_touch(data, now / data->line_bytes, event == TRACE_STORE);
        figures[is_flash ? FLASH_DATA : event == TRACE_STORE ? RAM_STORE : RAM_LOAD] += outcome.filled;
        figures[WRITE_BACK] += outcome.written_back != CACHE_NO_LINE;
    }
}

/* Six figures for each op, in the order of LineTraffic; false: a cache is impossible, or memory ran out. */
bool replay(const struct op *ops, uint64_t op_count, uint32_t passes, const struct shape *shapes, uint64_t *figures)
{
    struct cache caches[2];
    bool is_right = true;
    for (uint32_t i = 0; i < 2u; i++) {
        is_right = cache_init(&caches[i], shapes[i].size_bytes, shapes[i].ways, shapes[i].line_bytes) && is_right;
    }
    for (uint32_t pass = 0; is_right && pass < passes; pass++) {
        for (uint64_t op = 0; op < op_count; op++) {
            for (uint32_t figure = 0; figure < FIGURES; figure++) {
                figures[op * FIGURES + figure] = 0;
            }
            run(&ops[op], &caches[0], &caches[1], &figures[op * FIGURES]);
        }
    }
    for (uint32_t i = 0; i < 2u; i++) {
        free(caches[i].lines);
        free(caches[i].dirty);
    }
    return is_right;
}
