/* load.h: a buffer that the host fills in pieces.
 *
 * The owner supplies the bytes and their number; everything the host sends is checked against both, so that no sequence
 * of commands can write outside the buffer.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stdint.h>

enum load_status {
    LOAD_OK,       /* taken, more is expected */
    LOAD_COMPLETE, /* taken, the load is done */
    LOAD_NONE,     /* refused: no load was begun, or it is done already */
    LOAD_TOO_LONG, /* refused: more than the buffer holds */
};

struct load {
    uint8_t *bytes;
    uint32_t room;      /* bytes in the buffer */
    uint32_t announced; /* bytes of the load under way, 0 for none */
    uint32_t loaded;
    bool is_broken; /* something of it was refused since it was begun */
};

/* Forget everything: all bytes zero, no load under way. */
void load_clear(struct load *load);

/* Begin a load of `bytes` (1 .. room); earlier contents are cleared. */
enum load_status load_begin(struct load *load, uint32_t bytes);

/* Nothing is missing of the last load, and nothing of it was refused. Before the first one: true. */
bool load_is_whole(const struct load *load);

/* Append; bytes beyond those announced are disregarded, as the protocol's own firmware does. */
enum load_status load_append(struct load *load, const uint8_t *bytes, uint32_t count);

/* A debug probe has written the first `bytes` of the buffer: take them as loaded, and clear the others. */
enum load_status load_place(struct load *load, uint32_t bytes);

#endif
