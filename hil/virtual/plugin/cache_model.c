/* cache_model.c: see cache_model.h. The most recently used way of a set stands first, so that looking up is mostly one test. */
#include "cache_model.h"

#include <stdlib.h>

static bool is_power_of_two(uint32_t value)
{
    return value != 0u && (value & (value - 1u)) == 0u;
}

bool cache_init(struct cache *cache, uint32_t size_bytes, uint32_t ways, uint32_t line_bytes)
{
    *cache = (struct cache){.line_bytes = line_bytes, .ways = ways};
    if (size_bytes == 0u) {
        return is_power_of_two(line_bytes);
    }
    if (ways == 0u || !is_power_of_two(line_bytes) || size_bytes % (ways * line_bytes) != 0u) {
        return false;
    }
    cache->sets = size_bytes / (ways * line_bytes);
    const size_t entries = (size_t)cache->sets * ways;
    cache->lines = malloc(entries * sizeof *cache->lines);
    cache->dirty = calloc(entries, sizeof *cache->dirty);
    if (!is_power_of_two(cache->sets) || cache->lines == NULL || cache->dirty == NULL) {
        return false;
    }
    for (size_t entry = 0; entry < entries; entry++) {
        cache->lines[entry] = CACHE_NO_LINE;
    }
    return true;
}

struct cache_outcome cache_touch(struct cache *cache, uint64_t line, bool is_store)
{
    struct cache_outcome outcome = {.filled = true, .written_back = CACHE_NO_LINE};
    if (cache->sets == 0u) {
        return outcome;
    }
    const size_t first = (size_t)(line & (cache->sets - 1u)) * cache->ways;
    uint64_t *const lines = &cache->lines[first];
    bool *const dirty = &cache->dirty[first];
    uint32_t way = 0;
    while (way < cache->ways - 1u && lines[way] != line) {
        way++;
    }
    outcome.filled = lines[way] != line;
    if (outcome.filled && dirty[way]) {
        outcome.written_back = lines[way];
    }
    const bool now_dirty = is_store || (!outcome.filled && dirty[way]);
    for (; way > 0u; way--) {
        lines[way] = lines[way - 1u];
        dirty[way] = dirty[way - 1u];
    }
    lines[0] = line;
    dirty[0] = now_dirty;
    return outcome;
}
