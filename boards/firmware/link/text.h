/* text.h: numbers and strings to the host, without printf. */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>

void text_put(const char *string);
void text_put_decimal(uint64_t value);


/* A number and what is around it. */
void text_put_count(const char *head, uint64_t value, const char *tail);

/* `HEADvalue]`, `HEADtext]` and the end of a line. */
void text_put_field(const char *head, uint64_t value);
void text_put_bracketed(const char *head, const char *text);

/* As a decimal with three places. */
void text_put_thousandths(uint64_t value);
void text_put_hex8(uint8_t value);   /* two digits, lower case */
void text_put_hex32(uint32_t value); /* eight digits, lower case */

/* value * unit_q32 / 2^32 thousandths as a decimal with three places, ties to even as printf does: -1.250 */
void text_put_milli(int32_t value, int64_t unit_q32);

#endif
