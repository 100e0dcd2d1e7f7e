/* cache_model.h: a set-associative, write-back, write-allocate cache with least-recently-used replacement.
 * It holds addresses only. The caller owns the struct; cache_init allocates its tables, which live as long as QEMU does.
 */
#ifndef CACHE_MODEL_H
#define CACHE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_NO_LINE UINT64_MAX

struct cache {
    uint32_t line_bytes; /* a power of two */
    uint32_t sets;       /* a power of two */
    uint32_t ways;
    uint64_t *lines; /* [sets][ways] line numbers, most recently used first */
    bool *dirty;     /* likewise */
};

struct cache_outcome {
    bool filled;           /* the line was not there and was fetched */
    uint64_t written_back; /* number of the dirty line it pushed out, or CACHE_NO_LINE */
};

/* false: the geometry is not one of powers of two, or memory ran out. size_bytes = 0 makes a cache that holds nothing. */
bool cache_init(struct cache *cache, uint32_t size_bytes, uint32_t ways, uint32_t line_bytes);

/* Use one line, by its number (address / line_bytes). */
struct cache_outcome cache_touch(struct cache *cache, uint64_t line, bool is_store);

#endif
