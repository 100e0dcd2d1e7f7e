/* trace_model.h: which cache lines code and data of each region touch, in turn, for a cache of any size to be tried on later
 * (hil/virtual/replay). An event is a word: an address without its two lowest bits, and in these what happened there.
 *
 * Left out are touches of lines that were touched so shortly before that a cache with two ways (code) or four (data) has
 * them in any case; now and then such a line is named again, so that a cache knows that it is in use. When it falls out of
 * the recent ones, the lowest and the highest word that was touched in it are named: elsewhere the same bytes may begin
 * in the middle of a line and so lie in two.
 */
#ifndef TRACE_MODEL_H
#define TRACE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_LINE_BYTES 32u
#define TRACE_MOST_RECENT 4u

enum trace_event { TRACE_LOAD = 0, TRACE_STORE = 1, TRACE_CODE = 2, TRACE_REGION = 3 /* its number instead of an address */ };

struct trace_recent {
    uint64_t line;
    uint64_t named; /* the address in it that was written to the file last */
    uint64_t lowest;
    uint64_t highest;
    uint32_t written; /* events so far when it was written */
    bool is_stored;   /* and whether as one that is stored to */
};

struct trace {
    FILE *file;
    bool is_on;
    uint32_t events;
    struct trace_recent code[TRACE_MOST_RECENT]; /* the most recent first */
    struct trace_recent data[TRACE_MOST_RECENT];
};

/* false: the file cannot be written. */
bool trace_open(struct trace *trace, const char *path);
bool trace_close(struct trace *trace);

/* From now on a region is traced, or none. */
void trace_region(struct trace *trace, uint32_t region, bool is_on);

/* Code, or data, from an address to the last byte. */
void trace_code(struct trace *trace, uint64_t address, uint64_t last);
void trace_data(struct trace *trace, uint64_t address, uint64_t last, bool is_store);

#endif
