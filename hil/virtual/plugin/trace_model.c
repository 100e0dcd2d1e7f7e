/* trace_model.c: see trace_model.h. */
#include "trace_model.h"

#include <string.h>

#define CODE_WAYS 2u
#define NAMED_AGAIN_AFTER 32u /* events */

bool trace_open(struct trace *trace, const char *path)
{
    trace->file = fopen(path, "wb");
    return trace->file != NULL;
}

bool trace_close(struct trace *trace)
{
    return trace->file == NULL || fclose(trace->file) == 0;
}

static void write_event(struct trace *trace, uint64_t address, enum trace_event event)
{
    const uint32_t word = ((uint32_t)address & ~3u) | event;
    (void)fwrite(&word, sizeof word, 1, trace->file);
    trace->events++;
}

void trace_region(struct trace *trace, uint32_t region, bool is_on)
{
    trace->is_on = is_on && trace->file != NULL;
    if (trace->is_on) {
        write_event(trace, (uint64_t)region << 2, TRACE_REGION);
    }
    for (uint32_t i = 0; i < TRACE_MOST_RECENT; i++) {
        trace->code[i].line = trace->data[i].line = UINT64_MAX;
    }
}

static void touch(struct trace *trace, struct trace_recent *recent, uint32_t ways, uint64_t address, enum trace_event event)
{
    const uint64_t line = address / TRACE_LINE_BYTES;
    uint32_t way = 0;
    while (way < ways - 1u && recent[way].line != line) {
        way++;
    }
    struct trace_recent now = recent[way];
    const bool is_known = now.line == line && (event != TRACE_STORE || now.is_stored);
    if (!is_known || (way != 0u && trace->events - now.written > NAMED_AGAIN_AFTER)) {
        now = (struct trace_recent){line, trace->events, event == TRACE_STORE || (now.line == line && now.is_stored)};
        write_event(trace, address, event);
    }
    memmove(&recent[1], &recent[0], way * sizeof *recent);
    recent[0] = now;
}

void trace_code(struct trace *trace, uint64_t address, uint64_t last_line)
{
    touch(trace, trace->code, CODE_WAYS, address, TRACE_CODE);
    for (uint64_t line = (address / TRACE_LINE_BYTES + 1u) * TRACE_LINE_BYTES; line <= last_line; line += TRACE_LINE_BYTES) {
        touch(trace, trace->code, CODE_WAYS, line, TRACE_CODE);
    }
}

void trace_data(struct trace *trace, uint64_t address, uint64_t last, bool is_store)
{
    const enum trace_event event = is_store ? TRACE_STORE : TRACE_LOAD;
    touch(trace, trace->data, TRACE_MOST_RECENT, address, event);
    if (last / TRACE_LINE_BYTES != address / TRACE_LINE_BYTES) {
        touch(trace, trace->data, TRACE_MOST_RECENT, last, event);
    }
}
