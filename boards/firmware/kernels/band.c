#include "kernels/band.h"

#include <string.h>

void band_keep(struct band *band, int32_t first)
{
    if (first <= band->first) {
        return;
    }
    const int32_t kept = band_least(first, band->end);
    memmove(band->rows, band_row(band, kept), (size_t)((band->end - kept) * band->row_bytes));
    band->first = kept;
}

void band_window(struct window *window, const struct window *whole, const struct band *input,
                 const struct band *output, int32_t end)
{
    window->input_height = (uint16_t)(input->end - input->first);
    window->output_height = (uint16_t)(end - output->end);
    window->padding_top = (int16_t)(whole->padding_top + input->first - output->end * whole->stride_y);
}
