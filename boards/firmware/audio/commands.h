/* commands.h: the commands of a firmware with a front end.
 *
 *     audio load N      m-[Expecting N bytes]      begin a load of N bytes: int16 samples, little-endian
 *     audio BASE64      nothing, m-load-done after the last byte; at most PROTOCOL_LINE_CHARACTERS in the line
 *     audio place N     m-load-done                a debug probe has written the first N bytes of audio_buffer
 *     audio crc         m-crc-[8 hex digits]       CRC-32 of the bytes loaded so far
 *     features          m-features-[hex]           of the loaded audio, 32 bytes a line
 *     listen            m-word-[index], m-results-[...]      front end and network on the loaded audio
 *
 * and of one with a stream (kws_stream):
 *
 *     stream start      forget all audio heard so far
 *     stream feed       hear the loaded audio, in pieces of any length: m-heard-[hops,detections], both since the
 *                       start, and before it one line m-detection-[hop,class,sum] for every word found
 *     start, stop       MLPerf Tiny's streaming wake word: `start` is `stream start` and a timestamp; `stop` is another
 *                       one, m-heard-[hops,detections] and m-busy-[ticks]: what hearing took since the start, without
 *                       the time in which audio was on its way; over the audio's own length it is the duty cycle
 *     stream trace      the same, and m-frame-[hop,hex] for every hop, m-sums-[hop,sum,sum,...] for every run
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "command.h"

/* No audio loaded, none heard; before any command. */
void audio_commands_start(void);

extern const struct command AUDIO_COMMANDS[];
extern const uint32_t AUDIO_COMMAND_COUNT;

#endif
