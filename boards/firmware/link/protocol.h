/* protocol.h: the MLPerf Tiny serial protocol and our added commands.
 *
 * The host sends words separated by spaces and ended by '%', at most PROTOCOL_COMMAND_CHARACTERS before it (`audio`:
 * PROTOCOL_LINE_CHARACTERS). Replies are lines ended by CR LF; every command, also a refused one, ends with `m-ready`.
 *
 *     help  name  profile  timestamp  db load N  db HH..  db print  infer [N [W]]  results      (MLPerf Tiny)
 *     build       m-build-[16 hex digits]        identifies the sources of this image
 *     db place N  m-load-done                    a debug probe has written the first N bytes of input_buffer
 *     crc         m-crc-[8 hex digits]           CRC-32 of the bytes loaded so far
 *     baud [N]    m-baud-[rate]                  another serial rate, to be confirmed by `baud ok` (baud.h)
 *     errors      m-errors-[bytes]               damaged or lost on their way here since start
 *     output      m-output-[hex]                 raw output tensor, 32 bytes a line
 *     layers      m-layer-[index,ticks]          one inference, one line per operator; with a front end a line
 *                                                m-layer-[front_end,ticks] comes first
 *     laps        m-lap-[number,ticks]           the counter before and after each inference of the last `infer`
 *                                                (the first 32 of them): cycles on a board, instructions on the twin
 *     memory      m-memory-[stack high water,stack,arena]    bytes
 *     clock       m-clock-[hertz]
 *     check       m-check-[8 hex digits]         CRC-32 of the reply before it (reply_check.h)
 *     tensor N    m-tensor-[N,bytes,CRC-32]      of the output of operator N (tensor.h)
 *     (audio/commands.h: those of a firmware with a front end)
 *     reset       starts again; `m-ready` is the one that ends the boot messages
 *
 * `infer` after a load of which something is missing, or was refused, is refused, too: its results would look well.
 * A line in which a byte was damaged or lost is not run: `e-[Line damaged on its way here, N bytes since start]`.
 * An image built for energy (`m-timestamp-mode-energy`) prints no `m-lap-us`: it pulses the timestamp pin instead.
 * The boot message, from the mode to `m-init-done`, also says `m-[reset by watchdog]`, `m-[trouble: ...]` where nothing
 * may be measured, and `m-[option: nDBANK=0]` of a chip whose flash is set up otherwise than it is delivered.
 */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdint.h>

#include "model.h"

#define PROTOCOL_COMMAND_CHARACTERS 80u
#define PROTOCOL_LINE_CHARACTERS (MODEL_FRONT_END ? 250u : PROTOCOL_COMMAND_CHARACTERS)

/* Send the boot messages and be ready for commands. */
void protocol_boot(void);

/* Take one byte from the host as board_take() gives it; a '%' runs the command it ends. */
void protocol_receive(uint16_t received);

/* What was received of a command is not to be run. */
void protocol_forget_line(void);

#endif
