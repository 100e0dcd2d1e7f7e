/* matrix.c: two rows by two outputs at a time, so that four loads feed four multiply-accumulates; a row that is alone, on
 * the Cortex-M7, by four outputs, a word of four values at a time.
 */
#include "kernels/matrix.h"

#include <string.h>

#define UNROLLED 8

struct sums {
    int32_t at[2][2]; /* row, output */
};

struct operands {
    const int8_t *row_0;
    const int8_t *row_1;
    const int8_t *weights_0;
    const int8_t *weights_1;
};

static inline void accumulate(struct sums *sums, const struct operands *at, int32_t k)
{
    const int32_t x_0 = at->row_0[k];
    const int32_t x_1 = at->row_1[k];
    const int32_t w_0 = at->weights_0[k];
    const int32_t w_1 = at->weights_1[k];
    sums->at[0][0] += x_0 * w_0;
    sums->at[0][1] += x_0 * w_1;
    sums->at[1][0] += x_1 * w_0;
    sums->at[1][1] += x_1 * w_1;
}

static inline void advance(struct operands *at, int32_t count)
{
    at->row_0 += count;
    at->row_1 += count;
    at->weights_0 += count;
    at->weights_1 += count;
}

/* Not inlined: four pointers, four sums and four operands take all registers, the caller's variables must not compete.
 */
__attribute__((noinline)) static struct sums dot_2x2(const int8_t *row, const int8_t *weights, int32_t depth)
{
    struct sums sums = {0};
    struct operands at = {row, row + depth, weights, weights + depth};
    const int8_t *const end_of_blocks = row + depth / UNROLLED * UNROLLED;
    const int8_t *const end = row + depth;
    while (at.row_0 != end_of_blocks) {
#pragma GCC unroll 8
        for (int32_t k = 0; k < UNROLLED; k++) {
            accumulate(&sums, &at, k);
        }
        advance(&at, UNROLLED);
    }
    while (at.row_0 != end) {
        accumulate(&sums, &at, 0);
        advance(&at, 1);
    }
    return sums;
}

static inline int32_t dot(const int8_t *row, const int8_t *weights, int32_t depth)
{
    int32_t sum = 0;
#pragma GCC unroll 4
    for (int32_t k = 0; k < depth; k++) {
        sum += row[k] * weights[k];
    }
    return sum;
}

static int8_t one_output(const struct matrix *matrix, const int8_t *row, int32_t output)
{
    const struct requantise_channel *channel = &matrix->channels[output];
    const int32_t sum = dot(row, &matrix->weights[output * matrix->depth], matrix->depth);
    return requantise(sum + channel->bias, channel, &matrix->range);
}

#ifdef __ARM_FEATURE_DSP
static inline uint32_t word_at(const int8_t *values)
{
    uint32_t word;
    memcpy(&word, values, sizeof word);
    return word;
}

/* Bytes 0 and 2 of a word as two halfwords, or, turned by a byte, 1 and 3. */
static inline int32_t halves(uint32_t word)
{
    int32_t result;
    __asm("sxtb16 %0, %1" : "=r"(result) : "r"(word));
    return result;
}

static inline int32_t other_halves(uint32_t word)
{
    int32_t result;
    __asm("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(word));
    return result;
}

static inline int32_t two_products(int32_t first, int32_t second, int32_t sum)
{
    int32_t result;
    __asm("smlad %0, %1, %2, %3" : "=r"(result) : "r"(first), "r"(second), "r"(sum));
    return result;
}

__attribute__((noinline)) static void dot_1x4(const int8_t *row, const int8_t *weights, int32_t depth, int32_t *sums)
{
    const int8_t *const end = row + depth / 4 * 4;
    const int8_t *w_0 = weights, *w_1 = w_0 + depth, *w_2 = w_1 + depth, *w_3 = w_2 + depth;
    int32_t sum_0 = 0, sum_1 = 0, sum_2 = 0, sum_3 = 0;
#pragma GCC unroll 2
    while (row != end) {
        const uint32_t x = word_at(row);
        const int32_t even = halves(x), odd = other_halves(x);
        const uint32_t a = word_at(w_0), b = word_at(w_1), c = word_at(w_2), d = word_at(w_3);
        sum_0 = two_products(other_halves(a), odd, two_products(halves(a), even, sum_0));
        sum_1 = two_products(other_halves(b), odd, two_products(halves(b), even, sum_1));
        sum_2 = two_products(other_halves(c), odd, two_products(halves(c), even, sum_2));
        sum_3 = two_products(other_halves(d), odd, two_products(halves(d), even, sum_3));
        row += 4, w_0 += 4, w_1 += 4, w_2 += 4, w_3 += 4;
    }
    for (int32_t left = depth % 4; left > 0; left--) {
        const int32_t x = *row++;
        sum_0 += x * *w_0++, sum_1 += x * *w_1++, sum_2 += x * *w_2++, sum_3 += x * *w_3++;
    }
    sums[0] = sum_0, sums[1] = sum_1, sums[2] = sum_2, sums[3] = sum_3;
}

/* How many outputs of a row were made, four at a time. */
static int32_t fours(const struct matrix *matrix, const int8_t *input, int8_t *output)
{
    int32_t n = 0;
    for (; n + 3 < matrix->outputs; n += 4) {
        int32_t sums[4];
        dot_1x4(input, &matrix->weights[n * matrix->depth], matrix->depth, sums);
        for (int32_t k = 0; k < 4; k++) {
            const struct requantise_channel *channel = &matrix->channels[n + k];
            output[n + k] = requantise(sums[k] + channel->bias, channel, &matrix->range);
        }
    }
    return n;
}
#else
static int32_t fours(const struct matrix *matrix, const int8_t *input, int8_t *output)
{
    (void)matrix, (void)input, (void)output;
    return 0;
}
#endif

static void two_rows(const struct matrix *matrix, const int8_t *input, int8_t *output)
{
    const int32_t depth = matrix->depth;
    const int32_t outputs = matrix->outputs;
    const int8_t *weights = matrix->weights;
    int32_t n = 0;
    for (; n + 1 < outputs; n += 2) {
        const struct requantise_channel *channel = &matrix->channels[n];
        const struct sums sums = dot_2x2(input, weights, depth);
        for (int row = 0; row < 2; row++) {
            int8_t *pair = &output[row * outputs + n];
            pair[0] = requantise(sums.at[row][0] + channel[0].bias, &channel[0], &matrix->range);
            pair[1] = requantise(sums.at[row][1] + channel[1].bias, &channel[1], &matrix->range);
        }
        weights += 2 * depth;
    }
    if (n < outputs) {
        output[n] = one_output(matrix, input, n);
        output[outputs + n] = one_output(matrix, &input[depth], n);
    }
}

void matrix_multiply(const struct matrix *matrix, const int8_t *input, int32_t rows, int8_t *output)
{
    int32_t row = 0;
    for (; row + 1 < rows; row += 2) {
        two_rows(matrix, input, output);
        input += 2 * matrix->depth;
        output += 2 * matrix->outputs;
    }
    if (row < rows) {
        for (int32_t n = fours(matrix, input, output); n < matrix->outputs; n++) {
            output[n] = one_output(matrix, input, n);
        }
    }
}
