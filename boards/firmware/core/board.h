/* board.h: all that the portable firmware asks of a machine. Implemented by stm32/ for the boards, by boards/virtual
 * for the QEMU twin and by the tests for the host.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stdint.h>

/* Bring up clocks, caches, memory protection, counters, watchdog and console; called once, before anything else here.
 */
void board_start(void);

/* Next byte from the host, which an interrupt has put into a ring (ring.h): with RING_DAMAGED if it or bytes before it
 * did not arrive whole, RING_EMPTY if there is none yet. */
uint16_t board_take(void);

/* Bytes from the host that were damaged or lost since board_start. */
uint32_t board_receive_errors(void);

/* Send one byte to the host; waits for room, but not for ever: a byte that nothing takes is dropped. */
void board_put(uint8_t byte);

/* Serial rate: whether the UART can come within 2 % of it, and the change, after pending output has left. */
bool board_can_baud(uint32_t baud);
void board_set_baud(uint32_t baud);

/* The rate after board_start. */
uint32_t board_first_baud(void);

/* Monotonic count since board_start: core cycles on a board, executed instructions on the twin. Never wraps, provided
 * that it is called once an hour. */
uint64_t board_ticks(void);

/* Core clock as it is; on the twin that of the board it stands for, as if each instruction took one cycle. */
uint32_t board_clock_hz(void);

/* Why nothing may be measured here, such as a clock that did not start; NULL when all is well. */
const char *board_trouble(void);

/* An option byte that changes what code costs, as the reference manual writes it; NULL when all are as delivered. */
const char *board_option(void);

/* Identity, option bytes, clocks and power as the registers have them now, to be compared with board.yaml; false behind
 * the last one. */
struct board_register {
    const char *name;
    uint32_t value;
};
bool board_chip(uint32_t index, struct board_register *found);

/* Built for energy measurements: time is told by board_pulse() instead of text. Known when compiling: other images do
 * not carry what these need. */
#ifndef BOARD_MEASURES_ENERGY
#define BOARD_MEASURES_ENERGY 0
#endif

/* A falling edge on the timestamp pin, which stays low for BOARD_PULSE_US: an instrument of a million samples a second
 * sees ten of them; the protocol asks for one microsecond. */
#define BOARD_PULSE_US 10u
void board_pulse(void);

/* All is well: the watchdog starts anew. Due once an inference and while waiting; without it for half a minute (boards)
 * or four thousand million instructions (twin) the machine resets. */
void board_alive(void);

/* The watchdog caused the last reset. */
bool board_was_hung(void);

/* Name as in board.yaml; a twin's says that it is one. */
const char *board_name(void);

/* Deepest use of the stack since start-up, and its size; both in bytes. */
uint32_t board_stack_high_water_bytes(void);
uint32_t board_stack_bytes(void);

/* Let pending output leave, then start again from reset; where nobody can be told why, a light says it. */
_Noreturn void board_reset(void);

#endif
