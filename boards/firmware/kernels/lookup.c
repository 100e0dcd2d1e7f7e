#include "kernels/lookup.h"

#define AT_ONCE 4
#define VALUES 256
#define LINE_BYTES 32

/* Every cache line of the table is read first, so that a short call does not wait for as many as its values are far
 * apart: its time can be told before there are any. */
static void read_lines(const int8_t *table)
{
    const volatile int8_t *const values = table;
#pragma GCC unroll 8
    for (int32_t index = 0; index < VALUES; index += LINE_BYTES) {
        (void)values[index];
    }
    (void)values[VALUES - 1];
}

void lookup(const int8_t *table, const int8_t *input, int32_t count, int8_t *output)
{
    read_lines(table);
    const int8_t *const end = input + count;
    while (end - input >= AT_ONCE) { /* all reads first: the output may be the input */
        const int8_t value_0 = table[(uint8_t)input[0]];
        const int8_t value_1 = table[(uint8_t)input[1]];
        const int8_t value_2 = table[(uint8_t)input[2]];
        const int8_t value_3 = table[(uint8_t)input[3]];
        output[0] = value_0;
        output[1] = value_1;
        output[2] = value_2;
        output[3] = value_3;
        input += AT_ONCE;
        output += AT_ONCE;
    }
    while (input != end) {
        *output++ = table[(uint8_t)*input++];
    }
}
