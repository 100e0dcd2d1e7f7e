#include "text.h"

#include <stdbool.h>

#include "board.h"
#include "divide.h"
#include "reply_check.h"

static const char DIGITS[] = "0123456789abcdef";

static void put(char character)
{
    board_put((uint8_t)character);
    reply_check_add((uint8_t)character);
}

void text_put(const char *string)
{
    while (*string != '\0') {
        put(*string++);
    }
}

void text_put_decimal(uint64_t value)
{
    char digits[21]; /* 2^64 has 20 */
    char *first = &digits[20];
    *first = '\0';
    do {
        *--first = DIGITS[divide(&value, 10u)];
    } while (value != 0u);
    text_put(first);
}

void text_put_count(const char *head, uint64_t value, const char *tail)
{
    text_put(head);
    text_put_decimal(value);
    text_put(tail);
}

static const char CLOSED[] = "]\r\n";

void text_put_field(const char *head, uint64_t value)
{
    text_put_count(head, value, CLOSED);
}

void text_put_bracketed(const char *head, const char *text)
{
    text_put(head);
    text_put(text);
    text_put(CLOSED);
}

void text_put_hex8(uint8_t value)
{
    put(DIGITS[value >> 4]);
    put(DIGITS[value & 15u]);
}

void text_put_hex32(uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        text_put_hex8((uint8_t)(value >> shift));
    }
}

void text_put_milli(int32_t value, int64_t unit_q32)
{
    const int64_t product = (int64_t)value * unit_q32;
    const uint64_t magnitude = product < 0 ? 0u - (uint64_t)product : (uint64_t)product;
    const uint32_t fraction = (uint32_t)magnitude;
    uint64_t milli = magnitude >> 32;
    const bool tie = fraction == 0x80000000u;
    if (fraction > 0x80000000u || (tie && (milli & 1u) != 0u)) {
        milli++;
    }
    if (product < 0 && milli != 0u) {
        put('-');
    }
    text_put_thousandths(milli);
}

void text_put_thousandths(uint64_t value)
{
    const uint32_t places = divide(&value, 1000u);
    text_put_decimal(value);
    put('.');
    put(DIGITS[places / 100u]);
    put(DIGITS[places / 10u % 10u]);
    put(DIGITS[places % 10u]);
}
