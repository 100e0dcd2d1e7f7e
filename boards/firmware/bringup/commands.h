/* commands.h: the commands of a first day, in images built for `pipeline bringup` only.
 *
 *     chip    m-chip-[register,8 hex digits]                 identity, option bytes, clocks and power as they are
 *     ram     m-ram-[first,bytes,wrong words,first wrong]    patterns through all RAM that the image does not use; hex
 *     flash   m-flash-[first,bytes,CRC-32]                   of code and constants as the core reads them; hex
 *     fault   an undefined instruction: the fault line and a reset
 *     hang    nothing more: the watchdog resets
 */
#ifndef BRINGUP_COMMANDS_H
#define BRINGUP_COMMANDS_H

#include "command.h"

extern const struct command BRINGUP_COMMANDS[];
extern const uint32_t BRINGUP_COMMAND_COUNT;

#endif
