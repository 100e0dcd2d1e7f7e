/* trace_model.c: see trace_model.h. */
#include "trace_model.h"

#include <string.h>

#define CODE_WAYS 2u
#define NAMED_AGAIN_AFTER 32u /* events */
#define NO_LINE UINT64_MAX

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

static bool is_same_word(uint64_t one, uint64_t other)
{
    return one / 4u == other / 4u;
}

/* A line is no longer recent. */
static void leave(struct trace *trace, const struct trace_recent *recent, enum trace_event event)
{
    if (recent->line == NO_LINE) {
        return;
    }
    const enum trace_event named = recent->is_stored ? TRACE_STORE : event;
    if (!is_same_word(recent->lowest, recent->named)) {
        write_event(trace, recent->lowest, named);
    }
    if (!is_same_word(recent->highest, recent->named)) {
        write_event(trace, recent->highest, named);
    }
}

void trace_region(struct trace *trace, uint32_t region, bool is_on)
{
    for (uint32_t i = 0; i < TRACE_MOST_RECENT; i++) {
        if (trace->is_on) {
            leave(trace, &trace->code[i], TRACE_CODE);
            leave(trace, &trace->data[i], TRACE_LOAD);
        }
        trace->code[i].line = trace->data[i].line = NO_LINE;
    }
    trace->is_on = is_on && trace->file != NULL;
    if (trace->is_on) {
        write_event(trace, (uint64_t)region << 2, TRACE_REGION);
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
    if (now.line != line) {
        leave(trace, &now, event == TRACE_CODE ? TRACE_CODE : TRACE_LOAD);
        now = (struct trace_recent){line, address, address, address, trace->events, event == TRACE_STORE};
        write_event(trace, address, event);
    } else if ((event == TRACE_STORE && !now.is_stored) || (way != 0u && trace->events - now.written > NAMED_AGAIN_AFTER)) {
        now.named = address;
        now.written = trace->events;
        now.is_stored = now.is_stored || event == TRACE_STORE;
        write_event(trace, address, event);
    }
    now.lowest = address < now.lowest ? address : now.lowest;
    now.highest = address > now.highest ? address : now.highest;
    memmove(&recent[1], &recent[0], way * sizeof *recent);
    recent[0] = now;
}

void trace_code(struct trace *trace, uint64_t address, uint64_t last)
{
    touch(trace, trace->code, CODE_WAYS, address, TRACE_CODE);
    for (uint64_t line = (address / TRACE_LINE_BYTES + 1u) * TRACE_LINE_BYTES; line <= last; line += TRACE_LINE_BYTES) {
        touch(trace, trace->code, CODE_WAYS, line, TRACE_CODE);
    }
    touch(trace, trace->code, CODE_WAYS, last, TRACE_CODE);
}

void trace_data(struct trace *trace, uint64_t address, uint64_t last, bool is_store)
{
    const enum trace_event event = is_store ? TRACE_STORE : TRACE_LOAD;
    touch(trace, trace->data, TRACE_MOST_RECENT, address, event);
    if (!is_same_word(address, last)) {
        touch(trace, trace->data, TRACE_MOST_RECENT, last, event);
    }
}
