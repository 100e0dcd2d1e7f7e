/* band.h: row-wise (depth-first) fusion: operators run a few rows each, one after the other, so that the tensors between
 * them never exist whole. The functions that do so are generated (stages/firmware/kernels/fused.py); here is what they
 * have in common.
 */
#ifndef BAND_H
#define BAND_H

#include <stdint.h>

#include "kernels/inner/window.h"

/* The rows of a tensor that are in memory: [first, end) of all it has. */
struct band {
    int8_t *rows; /* from row `first` on */
    int32_t row_bytes;
    int32_t first;
    int32_t end;
};

static inline int32_t band_least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int8_t *band_row(const struct band *band, int32_t row)
{
    return &band->rows[(row - band->first) * band->row_bytes];
}

/* Let the rows before `first` go, if they are in memory; the others move to the front. */
void band_keep(struct band *band, int32_t first);

/* Of an operator's `whole` window, the one that makes rows [output->end, end) from what is there of the input. Rows
 * below that count as padding: those that the window sees are there, or do not exist. */
void band_window(struct window *window, const struct window *whole, const struct band *input,
                 const struct band *output, int32_t end);

#endif
