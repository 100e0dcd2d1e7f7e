/* reply_check.h: the CRC-32 of a reply, so that the host can tell a damaged one from a good one.
 *
 * `check` answers m-check-[8 hex digits]: the CRC-32 of everything sent in reply to the command before it, from the
 * first byte to the line feed of the closing m-ready. `check` itself leaves that value alone and may be asked again.
 */
#ifndef REPLY_CHECK_H
#define REPLY_CHECK_H

#include <stdint.h>

#include "command.h"

/* A command of so many characters was received: what is sent from here on is its reply. */
void reply_check_start(const char *command, uint32_t characters);

/* One byte was sent. */
void reply_check_add(uint8_t byte);

void reply_check_run(const struct words *words);

#endif
