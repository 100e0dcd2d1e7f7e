/* base64.h: RFC 4648, section 4; bytes in lines that hold nothing but letters, digits, '+', '/' and '='. */
#ifndef BASE64_H
#define BASE64_H

#include <stdbool.h>
#include <stdint.h>

/* Decode a whole string into at most `room` bytes; false, with nothing said about `bytes`, if it is no base64 (padding
 * included, stray bits excluded) or does not fit. */
bool base64_decode(const char *text, uint8_t *bytes, uint32_t room, uint32_t *count);

#endif
