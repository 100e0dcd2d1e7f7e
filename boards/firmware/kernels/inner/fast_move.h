/* fast_move.h: words to a lower address, eight a round; memmove() goes word by word, to be short. */
#ifndef FAST_MOVE_H
#define FAST_MOVE_H

#include <stdint.h>

/* Two int16 may be a word, too. */
typedef int32_t fast_word __attribute__((may_alias, aligned(2)));

static inline void fast_move(void *target, const void *source, int32_t words)
{
    fast_word *const to = target;
    const fast_word *const from = source;
    int32_t index = 0;
    for (; index + 7 < words; index += 8) {
        const int32_t a = from[index], b = from[index + 1], c = from[index + 2], d = from[index + 3];
        to[index] = a;
        to[index + 1] = b;
        to[index + 2] = c;
        to[index + 3] = d;
        const int32_t e = from[index + 4], f = from[index + 5], g = from[index + 6], h = from[index + 7];
        to[index + 4] = e;
        to[index + 5] = f;
        to[index + 6] = g;
        to[index + 7] = h;
    }
    for (; index < words; index++) {
        to[index] = from[index];
    }
}

#endif
